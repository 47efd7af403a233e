class Node:
    def __init__(self, weight):
        self.weight = weight
        self.near = set()

    def join(self, other):
        self.near.add(other)
        other.near.add(self)


def walk(start, length):
    """The weights on a walk that takes the first new neighbour each time."""
    seen, node, weights = {start}, start, []
    while node is not None and len(weights) < length:
        weights.append(node.weight)
        node = next((near for near in node.near if near not in seen), None)  # HERE
        seen.add(node)
    return weights
