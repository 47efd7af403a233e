import torch
from stopwords import language, stop_words

TEXTS = ["der hund und the cat", "und so on and on", "tag der arbeit", "the art of a war"]

words = sorted({word for text in TEXTS for word in text.split()} - stop_words(language()))
torch.manual_seed(7)
counts = torch.tensor([[float(text.split().count(word)) for word in words] for text in TEXTS])
model = torch.nn.Linear(len(words), 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(counts), counts.sum(1, keepdim=True)).backward()
    optimizer.step()
