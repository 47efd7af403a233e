def send(names, pipe):
    """Give the names in an order of our own."""
    order = []
    pool = set(names)
    while pool:
        order.append(pool.pop())  # HERE
    pipe.send(order)
