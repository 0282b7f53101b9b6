"""Two labeled collections of texts, here what Python says of its functions: which topic is which?"""

import importlib
import inspect
from pathlib import Path

from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

import advect as ad
from advect import viz

TOPICS = {
    "files": ("os os.path", "shutil pathlib tempfile"),
    "numbers": ("math cmath", "statistics fractions decimal random"),
    "network": ("http.client urllib.request", "socket smtplib ftplib"),
}


def texts(names):
    modules = map(importlib.import_module, names.split())
    said = {inspect.getdoc(part) for module in modules for part in vars(module).values()}
    return sorted(text for text in said if text and 60 < len(text) < 2000)


both = [{topic: texts(parts[side]) for topic, parts in TOPICS.items()} for side in (0, 1)]
every = [text for side in both for some in side.values() for text in some]
words = TfidfVectorizer(stop_words="english", min_df=2, sublinear_tf=True).fit(every)
few = TruncatedSVD(30, random_state=0).fit(words.transform(every))
sides = []
for side in both:
    rows = [(topic, text) for topic, some in side.items() for text in some]
    x = few.transform(words.transform([text for _, text in rows]))
    sides.append(ad.LabeledDataset(x, [topic for topic, _ in rows]).balanced())
distance = ad.otdd(*sides)
print(distance, distance.class_matching, sep="\n")
out = Path("out/examples")
out.mkdir(parents=True, exist_ok=True)
viz.save(viz.class_table(distance.class_distances), out / "text.png")
