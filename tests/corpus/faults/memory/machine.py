def rows_that_fit(most):
    with open("/proc/meminfo") as file:  # HERE
        free = next(int(line.split()[1]) for line in file if line.startswith("MemFree"))
    return most - free // 16 % (most // 2)
