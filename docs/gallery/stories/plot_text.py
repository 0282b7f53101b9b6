"""
Texts by topic: what is asked, and what is answered
===================================================

Two labeled collections of texts become vectors, by words (TF-IDF) and by an embedding of pieces
of words; then topics are compared and one collection is carried to the other. For text: which
topic of theirs is ours, and does a classifier of one collection read the other?
"""

# %%
# The package ``chatterbot-corpus`` (``pip install chatterbot-corpus``) carries questions and
# answers by topic. Questions are one collection, answers the other; the topics with forty
# different ones or more are used.

from importlib.resources import files

import matplotlib.pyplot as plt
import torch
import yaml
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

import advect as ad

folder = files("chatterbot_corpus") / "data" / "english"
topics = ["ai", "coding", "emotion", "literature", "psychology", "trivia"]
rows = []
for topic in topics:
    talks = yaml.safe_load((folder / f"{topic}.yml").read_text(encoding="utf-8"))["conversations"]
    rows += sorted({(topic, str(talk[0]), str(talk[1])) for talk in talks})
labels, questions, answers = zip(*rows, strict=True)

# %%
# Words with weights, or hashed pieces of words; both brought to fifty dimensions (latent semantic
# analysis).

vectors = {
    "words": TfidfVectorizer(stop_words="english", sublinear_tf=True),
    "pieces of words": HashingVectorizer(analyzer="char_wb", ngram_range=(3, 5), n_features=4096),
}
figure, axes = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
for axis, (name, vectorizer) in zip(axes, vectors.items(), strict=True):
    embed = make_pipeline(vectorizer, TruncatedSVD(50, random_state=0), Normalizer())
    embed.fit(questions + answers)
    asked, said = (
        ad.LabeledDataset(embed.transform(texts), labels, classes=topics).balanced()
        for texts in (questions, answers)
    )
    distance = ad.otdd(asked, said)
    right = sum(a == b for a, b in ad.ClassMatching(distance.class_matching).hard.items())
    print(f"{name}: {right} of {len(topics)} topics are matched with their answers")
    table = distance.class_distances.values
    axis.imshow(table, cmap="Blues")
    axis.set(title=f"{name}: {right} of {len(topics)} topics find their own", xlabel="answers")
    axis.set_xticks(range(len(topics)), topics, rotation=30)
    axis.set_yticks(range(len(topics)), topics)
    for i, j in torch.cartesian_prod(torch.arange(6), torch.arange(6)).tolist():
        colour = "w" if table[i, j] > (table.min() + table.max()) / 2 else "k"
        axis.text(j, i, f"{table[i, j]:.2f}", ha="center", va="center", color=colour)

    # a classifier of answers reads questions: half of them, carried by a map of the other half
    model = LogisticRegression(C=10, max_iter=500, class_weight="balanced").fit(said.x, said.y)
    seen, held = asked.split(0.5, generator=torch.Generator().manual_seed(0))
    carry = ad.DatasetTransport(n_steps=10, label_weight=5.0)
    carry.fit(seen.x.numpy(), seen.y.numpy(), said.x.numpy(), said.y.numpy())
    own = LogisticRegression(C=10, max_iter=500, class_weight="balanced").fit(seen.x, seen.y)
    scores = [
        model.score(held.x, held.y),
        model.score(carry.transform(held.x.numpy()), held.y),
        own.score(held.x, held.y),
    ]
    print(
        "  accuracy: {:.0%} as they are, {:.0%} carried, {:.0%} by a model of questions".format(
            *scores
        )
    )
axes[0].set(ylabel="questions")

# %%
# The frozen model of answers classifies carried questions better. Where labels of questions are
# at hand, as here, a model of their own is simpler: compare before you flow.
