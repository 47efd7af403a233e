import torch
from torch.utils.data import Dataset


class Words(Dataset):
    """Sentences as the numbers of their distinct words."""

    def __init__(self, sentences):
        self.sentences = sentences

    def __len__(self):
        return len(self.sentences)

    def __getitem__(self, index):
        numbers = torch.zeros(60, dtype=torch.long)
        for place, word in enumerate(set(self.sentences[index].split())):  # HERE
            numbers[place] = int(word[1:])
        return numbers[:6]
