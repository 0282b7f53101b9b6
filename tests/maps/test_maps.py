"""Maps carry new samples as the flow would have: against optimal maps in closed form, through files, and at the edges."""

import numpy as np
import pytest
import torch
from flow_cases import draw, labeled
from oracles import half_squared, optimal_matrix, root, sinkhorn_loop

import advect as ad
from advect.data.store import read_tensors, write_tensors
from advect.maps import EntropicMap, FlowMatchingMap, NearestMap, NeuralMap

QUICK = {"epochs": 3, "restarts": 1, "progress": False}
FEW_UPDATES = {"updates": 20, "width": 32, "progress": False}
MAPS = {
    "nearest": lambda: NearestMap(k=3),
    "entropic": lambda: EntropicMap(),
    "neural": lambda: NeuralMap(**QUICK),
    "flow matching": lambda: FlowMatchingMap(**FEW_UPDATES),
}
each_map = pytest.mark.parametrize("make", MAPS.values(), ids=MAPS)


def moved(data, by=1.0):
    return data.replace(x=data.x + by)


class TestOptimalMap:
    """From N(m_s, S_s) to N(m_t, S_t): x ↦ m_t + A (x − m_s), A = S_s^-½ (S_s^½ S_t S_s^½)^½ S_s^-½."""

    first = torch.tensor([[1.0, 0.4], [0.4, 0.6]], dtype=torch.float64)
    last = torch.tensor([[0.5, -0.3], [-0.3, 2.0]], dtype=torch.float64)
    mean_s, mean_t = torch.tensor([[1.0, -1.0], [4.0, 2.0]], dtype=torch.float64)

    def samples(self, n, seed):
        return self.mean_s + draw(n, 2, seed=seed) @ root(self.first)

    def optimal(self, x):
        return self.mean_t + (x - self.mean_s) @ optimal_matrix(self.first, self.last)

    def error(self, fitted):
        new = self.samples(1000, 99)
        return float((fitted.transform(new) - self.optimal(new)).norm(dim=1).mean())

    @pytest.mark.slow
    def test_entropic_maps_converge(self):
        # The blur has width √ε and holds about nε particles. With ε ∝ n^-½, four times the particles halve ε: this halves
        # the bias of the blurred map, of order ε, and the noise of the debiased one, √ε for each of nε particles. Measured
        # over three draws the factor is 0.43 to 0.57 for both, and draws differ by 20 %: 0.7 fails without convergence.
        errors: dict[bool, list[float]] = {True: [], False: []}
        for debias in errors:
            for n in (100, 400, 1600):
                start, fitted = self.samples(n, 0), EntropicMap(0.2 * (200 / n) ** 0.5, 1.0, debias)
                errors[debias].append(self.error(fitted.fit(start, self.optimal(start))))
            first, second, third = errors[debias]
            assert second < 0.7 * first and third < 0.7 * second
        pairs = zip(errors[True], errors[False], strict=True)
        assert all(sharp < 0.5 * blurred for sharp, blurred in pairs)
        assert errors[True][-1] < 0.01 * float(self.last.trace().sqrt())

    @pytest.mark.slow
    def test_the_flow_gives_the_pairs(self):
        start = self.samples(400, 0)
        target = ad.LabeledDataset(self.optimal(self.samples(400, 1)))
        objective = ad.OTDD(target, cost=ad.GroundCost(label=ad.NoLabels()))
        result = ad.flow(ad.LabeledDataset(start), objective, integrator=ad.Euler(0.2), n_steps=25)
        # two draws of 400 are themselves this far apart, some 0.2 per sample
        assert self.error(EntropicMap(epsilon=0.1).fit(result)) < 0.35
        assert self.error(NearestMap(k=20).fit(result)) < 0.35
        assert self.error(NeuralMap(progress=False, restarts=1).fit(result)) < 0.35

    def test_neural_map_learns_an_affine_map(self):
        start = self.samples(1000, 0)
        fitted = NeuralMap(progress=False, restarts=2).fit(start, self.optimal(start))
        assert self.error(fitted) < 0.1 and fitted.held_out_error_ < 0.1


@pytest.mark.parametrize("with_labels", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@each_map
def test_a_translation_is_recovered(make, dtype, with_labels):
    data = labeled([60, 90], 3, 0, weighted=True).to(dtype=dtype)
    start = data if with_labels else ad.LabeledDataset(data.x, weights=data.weights)
    by = torch.tensor([3.0, -1.0, 20.0], dtype=dtype)
    fitted = make().fit(start, moved(start, by))
    new = 2 * draw(40, 3, seed=5).to(dtype) + 1
    out = fitted.transform(new)
    assert out.dtype == dtype
    assert torch.allclose(out, new + by, atol=1e-4 if dtype == torch.float32 else 1e-6)
    if with_labels:
        assert torch.allclose(fitted.transform(new, [0, 1] * 20), new + by, atol=1e-4)


class TestNearest:
    def test_particles_themselves_are_exact(self):
        for dtype, offset in ((torch.float32, 1000.0), (torch.float64, 1e6)):
            start = (draw(500, 20) + offset).to(dtype)
            end = draw(500, 20, seed=1).to(dtype)
            assert torch.equal(NearestMap().fit(start, end).transform(start), end)

    def test_mean_displacement_of_neighbours(self):
        fitted = NearestMap(k=2).fit([[0.0], [1.0], [9.0]], [[10.0], [21.0], [0.0]])
        assert fitted.transform([[0.4]]).tolist() == pytest.approx(np.array([[15.4]]))

    def test_particle_weights_count(self):
        # the last particle has no weight and does not move in a flow
        start = ad.LabeledDataset([[0.0], [1.0], [0.5]], weights=[1.0, 3.0, 0.0])
        fitted = NearestMap(k=2).fit(start, start.replace(x=torch.tensor([[4.0], [9.0], [0.5]])))
        assert fitted.transform([[0.5]]).item() == pytest.approx(0.5 + 0.25 * 4 + 0.75 * 8)

    def test_neighbours_of_the_same_class(self):
        start = ad.LabeledDataset([[0.0], [1.0], [2.0]], ["a", "b", "b"])
        fitted = NearestMap(k=2).fit(start, start.replace(x=torch.tensor([[100.0], [2.0], [3.0]])))
        carried = fitted.transform([[0.0], [0.0], [0.0]], ["a", "b", None])
        assert carried.flatten().tolist() == [100.0, 1.0, 50.5]


class TestEntropic:
    def test_agrees_with_a_plain_loop(self):
        start = labeled([12, 18], 2, 0, weighted=True)
        end = labeled([12, 18], 2, 1, shift=1.0, apart=3.0)
        end = end.replace(weights=start.weights, y=start.y.roll(4))  # some change their class
        went = end.replace(y=start.y)  # what began in a class, at the end
        a, new, y = start.weights.numpy(), draw(5, 2, seed=3), torch.tensor([0, 1, 1, 0, 1])
        epsilon, weight = 0.8, 0.3  # labels count, and do not decide alone
        fitted = EntropicMap(epsilon=epsilon, label_weight=weight).fit(start, end)
        expected = new.numpy().copy()
        for sign, laws, other in (
            (1, ad.Bures()(went, end), end),
            (-1, ad.Bures()(start, start), start),
        ):
            labels = weight / 2 * laws.numpy()
            cost = half_squared(start.x, other.x) + labels[start.y][:, other.y]
            g = sinkhorn_loop(cost, a, a, epsilon, tol=1e-9)[2]
            plan = a * np.exp((g - half_squared(new, other.x) - labels[y][:, other.y]) / epsilon)
            expected += sign * (plan / plan.sum(axis=1, keepdims=True)) @ other.x.numpy()
        # marginals are matched to 1e-4; that the fit works with centred states changes no plan
        assert np.allclose(fitted.transform(new, y), expected, atol=2e-3)
        assert not np.allclose(fitted.transform(new, 1 - y), expected, atol=2e-2)

    def test_classes_go_where_the_flow_took_them(self):
        # Two classes change places: transport between laws would leave them where they are.
        start = labeled([30, 30], 2, 0, apart=8.0)
        end = start.replace(x=start.x + torch.where(start.y == 0, 8.0, -8.0)[:, None])
        new = labeled([10, 10], 2, 5, apart=8.0)
        expected = new.x + torch.where(new.y == 0, 8.0, -8.0)[:, None]
        fitted = EntropicMap(label_weight=5.0).fit(start, end)
        assert torch.allclose(fitted.transform(new).x, expected, atol=1e-3)
        # the posterior knows the class
        assert torch.allclose(fitted.transform(new.x), expected, atol=1e-3)

    def test_potentials_of_one_level_are_near_those_of_the_next(self, monkeypatch):
        counts, solve = [], ad.Sinkhorn.solve

        def counted(*args, **options):
            counts.append(solve(*args, **options))
            return counts[-1]

        monkeypatch.setattr(ad.Sinkhorn, "solve", counted)
        start = labeled([40, 30, 30], 3, 0, apart=8.0)
        EntropicMap(ad.Relative(0.001)).fit(start, moved(start, 20.0 * (start.y[:, None] == 1)))
        assert len(counts) == 6 and sum(found.n_iter for found in counts) <= 28

    def test_posterior_is_that_of_the_kernel(self):
        start = labeled([12, 18, 5], 2, 0, weighted=True)
        fitted = EntropicMap(epsilon=0.3).fit(start, moved(start))
        new = draw(20, 2, seed=1)
        kernel = start.weights.numpy() * np.exp(-half_squared(new, start.x) / 0.3)
        mass = np.stack([kernel[:, start.y == code].sum(axis=1) for code in range(3)], axis=1)
        rows = fitted.posterior(new)
        assert torch.allclose(rows.sum(dim=1), torch.ones(20, dtype=rows.dtype))
        assert np.allclose(rows, mass / mass.sum(axis=1, keepdims=True))

    def test_labels_decide_where_features_do_not(self):
        # Classes that overlap part: a goes 10 to the left, b 8 to the right. Between them the label says where to.
        y = torch.arange(200) % 2
        x = draw(200, 1) + 2.0 * y[:, None]
        start = ad.LabeledDataset(x, y, classes=["a", "b"])
        end = start.replace(x=x + torch.where(y == 0, -10.0, 8.0)[:, None])
        new = 0.3 * draw(30, 1, seed=3) + 1
        fitted = EntropicMap(epsilon=0.5, label_weight=5.0).fit(start, end)
        assert torch.allclose(fitted.transform(new, ["a"] * 30), new - 10, atol=0.05)
        assert torch.allclose(fitted.transform(new, ["b"] * 30), new + 8, atol=0.05)
        unaware = EntropicMap(epsilon=0.5, label_weight=0.0).fit(start, end)
        assert torch.equal(unaware.transform(new, ["a"] * 30), unaware.transform(new, ["b"] * 30))
        assert not torch.allclose(unaware.transform(new), new + 8, atol=1.0)

    def test_some_particles_without_labels(self):
        start = ad.LabeledDataset([[0.0], [1.0]], ["a", None])
        with pytest.raises(ad.InputError, match="label_weight=0"):
            EntropicMap().fit(start, start)
        unaware = EntropicMap(label_weight=0).fit(start, start)
        assert unaware.transform([[0.5]]).item() == pytest.approx(0.5)


@pytest.mark.parametrize("make", [NeuralMap, FlowMatchingMap])
def test_seeds_reproduce_and_leave_the_random_state_of_torch(make):
    start, end = (labeled([40, 40], 3, seed).to(dtype=torch.float32) for seed in (0, 1))
    fitted_to, options = (start, end), QUICK
    if make is FlowMatchingMap:
        fitted_to, options = (ad.PairSampler(start, end),), FEW_UPDATES
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    runs = [make(seed=seed, **options).fit(*fitted_to) for seed in (0, 0, 1)]
    same, again, other = (run.transform(start).x for run in runs)
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(same, again) and not torch.equal(same, other)
    if make is NeuralMap:
        assert runs[0].held_out_error_ == runs[1].held_out_error_


class TestFiles:
    @pytest.mark.parametrize("shape", [(6,), (2, 3), (5, 4)])
    @each_map
    def test_same_to_the_last_bit(self, make, shape, tmp_path):
        data = labeled([20, 25], int(np.prod(shape)), 0, weighted=True).to(dtype=torch.float32)
        data = data.replace(sample_shape=shape, classes=(("a", 1), "b"))
        fitted = make().fit(data, data.replace(x=data.x.flip(0)))
        again = ad.maps.load(fitted.save(tmp_path / "map.safetensors"))
        assert type(again) is type(fitted) and repr(again) == repr(fitted)
        assert again.classes_ == fitted.classes_ and again.sample_shape_ == shape
        new = draw(10, *shape, seed=4)
        assert torch.equal(again.transform(new), fitted.transform(new))
        assert torch.equal(again.transform(new, ["b"] * 10), fitted.transform(new, ["b"] * 10))
        assert torch.equal(again.transform(data).x, fitted.transform(data).x)

    @each_map
    def test_truncated_or_changed(self, make, tmp_path):
        data = labeled([10, 12], 3, 0)
        content = make().fit(data, moved(data)).save(tmp_path / "map.safetensors").read_bytes()
        broken = tmp_path / "broken.safetensors"
        half, changed = content[: len(content) // 2], content[:-8] + bytes(7) + b"\x01"
        for part in (b"", content[:5], half, content[:-1], changed):
            broken.write_bytes(part)
            with pytest.raises(ad.InputError):
                ad.maps.load(broken)

    @pytest.mark.slow
    @each_map
    def test_facts_that_do_not_fit(self, make, tmp_path):
        data = labeled([10, 12], 3, 0)
        whole, broken = tmp_path / "map.safetensors", tmp_path / "broken.safetensors"
        tensors, whole_facts = read_tensors(make().fit(data, moved(data)).save(whole))
        negative = ("k", "epsilon", "epochs", "updates", "noise")
        write_tensors(broken, tensors, whole_facts)
        ad.maps.load(broken)  # unchanged facts are read
        shapes = [4], "3", [-1, -3], [], [10**6, 10**6]  # and no memory is asked for
        own = {}, None, whole_facts["own"] | dict.fromkeys(negative, -1)
        changes = [{"kind": "advect snapshot"}, {"version": 2}]
        changes += [{"map": name} for name in ("os.system", ["nearest"])]
        changes += [{"sample_shape": shape} for shape in shapes] + [{"own": part} for part in own]
        without = {name: value for name, value in whole_facts.items() if name != "own"}
        for facts in (*(whole_facts | change for change in changes), without, [whole_facts]):
            write_tensors(broken, tensors, facts)
            with pytest.raises(ad.InputError):
                ad.maps.load(broken)

    def test_states_of_other_particles(self, tmp_path):
        data, path = labeled([5, 6], 3, 0), tmp_path / "map.safetensors"
        tensors, facts = read_tensors(ad.maps.NearestMap().fit(data, moved(data)).save(path))
        light = torch.tensor([0.0] + [0.1] * 10).double()
        for change in ({"start.weights": light}, {"end.x": tensors["end.x"].float()}):
            write_tensors(path, tensors | change, facts)
            with pytest.raises(ad.InputError, match="damaged"):
                ad.maps.load(path)

    def test_other_files_are_refused(self, tmp_path):
        (tmp_path / "text.safetensors").write_text("not a map")
        recorder, data = ad.Recorder(directory=tmp_path / "run"), ad.LabeledDataset([[1.0]], ["a"])
        ad.flow(data, ad.Potential(ad.norm()), n_steps=1, callbacks=[recorder])
        frames = list((tmp_path / "run").rglob("*.safetensors"))  # a file of ours, but no map
        assert frames
        for path in (tmp_path / "text.safetensors", tmp_path, tmp_path / "missing", frames[0]):
            with pytest.raises(ad.InputError):
                ad.maps.load(path)


class TestForms:
    @each_map
    def test_kinds_of_data(self, make):
        data = labeled([20, 20], 4, 0).to(dtype=torch.float32).replace(sample_shape=(2, 2))
        fitted, new = make().fit(data, moved(data)), draw(5, 2, 2, seed=1)
        out = fitted.transform(new)
        assert out.dtype == torch.float64 and out.shape == new.shape
        for kind in (new.numpy(), new.tolist()):
            found = fitted.transform(kind)
            assert isinstance(found, np.ndarray) and np.allclose(found, out, atol=1e-5)
        assert torch.equal(fitted.transform(new.reshape(5, 4)), out.reshape(5, 4))
        named = ad.LabeledDataset(new, [0, 1, 1, 0, None], weights=[1.0, 2.0, 3.0, 4.0, 5.0])
        found = fitted.transform(named)
        assert found.sample_shape == (2, 2) and found.labels == named.labels
        assert torch.equal(found.weights, named.weights)

    @each_map
    def test_errors(self, make):
        data = labeled([10, 10], 2, 0)
        result = ad.flow(data, ad.Potential(ad.norm()), n_steps=1)
        fitted = make().fit(result)
        calls = [
            (lambda: make().transform(data.x), "fitted first"),
            (lambda: make().save("map.safetensors"), "fitted first"),
            (lambda: make().fit(data), "fit\\(start, end\\)"),
            (lambda: make().fit(data, data.subset(slice(5))), "same particles"),
            (lambda: make().fit(result, data), "takes no end"),
            (lambda: fitted.transform(draw(3, 5)), "shape"),
            (lambda: fitted.transform([[0.0, float("nan")]]), "NaN"),
            (lambda: fitted.transform(np.zeros((0, 2))), "at least one sample"),
        ]
        if fitted.classes_:
            calls += [
                (lambda: fitted.transform(data.x, ["what"] * 20), "classes"),
                (lambda: fitted.transform(data.replace(classes=("x", "y"))), "classes of the fit"),
                (lambda: fitted.transform(data.x, [0, 1]), "same length"),
            ]
        for call, keyword in calls:
            with pytest.raises(ad.InputError, match=keyword):
                call()

    def test_options_and_columns(self):
        data = ad.LabeledDataset(draw(9, 2), columns=["a", "b"])
        named = NearestMap().fit(data, moved(data))
        assert named.transform(data).columns == ("a", "b")
        turned = ad.LabeledDataset(draw(9, 2), columns=["b", "a"])
        for bad in (
            lambda: named.transform(turned),
            lambda: NearestMap(k=0),
            lambda: NearestMap(k=3).fit([[0.0]], [[1.0]]),
            lambda: EntropicMap(epsilon=0.0),
            lambda: EntropicMap(label_weight=-1.0),
            lambda: NeuralMap(epochs=-1),
            lambda: EntropicMap().fit([[0.0]], [[1.0]]).posterior([[0.0]]),
        ):
            with pytest.raises(ad.InputError):
                bad()

    def test_classes_without_samples(self):
        start = ad.LabeledDataset(draw(8, 2), ["a", "c"] * 4, classes=["a", "b", "c"])
        for make in MAPS.values():
            fitted = make().fit(start, moved(start))
            assert torch.allclose(fitted.transform(start).x, start.x + 1, atol=1e-5)
        assert EntropicMap().fit(start, moved(start)).classes_ == ("a", "c")
        with pytest.raises(ad.InputError, match="classes"):
            NearestMap().fit(start, start).transform(start.x, ["b"] * 8)

    @pytest.mark.parametrize("make", [NearestMap, EntropicMap])
    def test_labels_are_names_and_never_positions(self, make):
        start = ad.LabeledDataset([[0.0], [1.0], [10.0], [11.0]], [3, 3, 5, 5])
        fitted = make().fit(start, moved(start, torch.tensor([[1.0], [1.0], [-5.0], [-5.0]])))
        for strange in ([0], [1], [3, 0], start.y[:1], np.array([4])):
            with pytest.raises(ad.InputError, match="classes of the fit, 3, 5"):
                fitted.transform([[10.0]] * len(strange), strange)
        both = fitted.transform([[10.0], [10.0]], [3, 5])
        assert both[0] > 10 > both[1]  # class 3 went up, class 5 down
        assert np.array_equal(fitted.transform([[10.0], [10.0]], torch.tensor([3, 5])), both)
        assert np.array_equal(fitted.transform([[10.0], [10.0]], [3.0, 5.0]), both)
        assert torch.equal(fitted.transform(start.x, start.labels), fitted.transform(start).x)
        # names in another order, one of them never used
        other = ad.LabeledDataset([[10.0], [10.0]], [5, 3], classes=[5, 3, 9])
        assert np.allclose(fitted.transform(other).x, both[::-1])

    def test_a_failed_fit_is_not_a_fit(self):
        fitted = EntropicMap().fit([[0.0], [1.0]], [[1.0], [2.0]])
        with pytest.raises(ad.InputError):
            fitted.fit(ad.LabeledDataset([[0.0], [1.0]], ["a", None]), [[0.0], [1.0]])
        with pytest.raises(ad.InputError, match="fitted first"):
            fitted.transform([[0.0]])


class TestEdges:
    @pytest.mark.slow
    @pytest.mark.parametrize("scale", [1e-30, 1e-8, 1e8, 1e15])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @each_map
    def test_scales(self, make, dtype, scale):
        data = labeled([30, 30], 2, 0).to(dtype=dtype)
        end = data.replace(x=2 * data.x + 3)
        new = draw(20, 2, seed=1).to(dtype)

        def carried(by):
            first, last = (state.replace(x=state.x * by) for state in (data, end))
            return make().fit(first, last).transform(new * by) / by

        assert torch.allclose(carried(scale), carried(1.0), rtol=1e-3, atol=1e-3)

    @each_map
    def test_single_particle(self, make):
        for start in (ad.LabeledDataset([[2.0, 3.0]]), ad.LabeledDataset([[2.0, 3.0]], ["a"])):
            one = NearestMap() if make is MAPS["nearest"] else make()
            new = np.array([[2.0, 3.0], [50.0, -9.0]])
            assert np.allclose(one.fit(start, moved(start, 4.0)).transform(new), new + 4, atol=1e-5)
