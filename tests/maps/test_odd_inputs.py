"""Maps of images, and pairs of samples without labels."""

import pytest
from flow_cases import draw, labeled

import advect as ad


@pytest.mark.parametrize("shape", [(4, 4), (5, 6), (7, 4, 3)])
def test_a_network_keeps_the_shape_of_images(shape):
    source = ad.LabeledDataset(draw(6, *shape).float(), [0, 1] * 3)
    end = source.replace(x=source.x + 1)
    fitted = ad.maps.NeuralMap(epochs=1, restarts=1).fit(source, end)
    assert fitted.transform(source.samples).shape == (6, *shape)


@pytest.mark.parametrize("missing", [(1, 0), (0, 2), (1, 1)])
def test_labels_that_are_missing_on_either_side_are_refused(missing):
    source, target = labeled([4, 4], 2, 0), labeled([4, 4], 2, 1)
    pairs = ad.PairSampler(source, target, label_weight=1.0)
    sides = [
        [None] * count + data.labels[count:]
        for data, count in zip((source, target), missing, strict=True)
    ]
    with pytest.raises(ad.InputError, match="label"):
        pairs.plan(source.x, target.x, *sides)
