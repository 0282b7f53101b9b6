"""The forms of the sliced distance: moments against loops and quadrature, the control variate against
plain means, principal directions against exact transport; laws that all of them obey.
"""

import math

import numpy as np
import ot as pot
import pytest
import torch
from scipy import stats

import advect as ad
from advect.functionals import SlicedOTDD, sliced_otdd, slicing
from advect.functionals.principal import leading_axes
from advect.functionals.projections import (
    Frame,
    GaussianLabels,
    Lines,
    MomentLabels,
    uniform_lines,
)
from advect.functionals.slicing import Pair, controlled

FORMS = {
    "gaussian": {},
    "gaussian, plain": {"control": False},
    "moments": {"projection": "moments"},
    "moments, plain": {"projection": "moments", "control": False},
    "features alone": {"label_weight": 0},
    "principal": {"directions": "principal"},
    "principal, features alone": {"directions": "principal", "label_weight": 0},
}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def labeled(n, seed=0, d=3, k=3, shift=0.0, weighted=False):
    y = torch.arange(n) % k
    x = torch.randn(n, d, generator=generator(seed), dtype=torch.float64) * (1 + y[:, None]) / 2
    weights = None
    if weighted:
        weights = torch.rand(n, generator=generator(seed + 50), dtype=torch.float64) + 0.1
    return ad.LabeledDataset(x + 2 * y[:, None] + shift, y, weights=weights)


class TestMoments:
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("standardize", [False, True])
    @pytest.mark.parametrize("label_weight", [1.0, 2.5])
    def test_against_loops(self, weighted, standardize, label_weight):
        """The definition of the paper, sample by sample."""
        a, b = labeled(9, weighted=weighted), labeled(7, 3, k=2, shift=0.5, weighted=weighted)
        found = sliced_otdd(
            a,
            b,
            6,
            label_weight=label_weight,
            projection="moments",
            n_moments=4,
            control=False,
            standardize=standardize,
            generator=generator(2),
        )
        lines = uniform_lines(3, 6, MomentLabels(4), generator(2))
        theta, psi = lines.theta.numpy(), lines.psi.numpy()
        orders = lines.orders.numpy()
        xs = [data.x.numpy() for data in (a, b)]
        masses = [data.weights.numpy() for data in (a, b)]
        centre, unit, scale = np.zeros(3), 1.0, 1.0
        if standardize:
            centre = (masses[0] @ xs[0] + masses[1] @ xs[1]) / 2
            mean_square = [m @ ((x - centre) ** 2).sum(1) for x, m in zip(xs, masses, strict=True)]
            unit, scale = math.sqrt(sum(mean_square) / 6), 15.0
        total = 0.0
        for line in range(6):
            images = []
            for data, x, mass in zip((a, b), xs, masses, strict=True):
                image = []
                for i in range(len(x)):
                    z = [float(theta[:, line] @ (row - centre)) / unit for row in x]
                    number = psi[0, line] * z[i]
                    same = [j for j in range(len(x)) if data.y[j] == data.y[i]]
                    whole = sum(mass[j] for j in same)
                    for part in range(4):
                        order = int(orders[part, line])
                        moment = sum(mass[j] / whole * z[j] ** order for j in same)
                        number += (
                            math.sqrt(label_weight)
                            * psi[1 + part, line]
                            * moment
                            / math.factorial(order)
                        )
                    image.append(unit * number)
                images.append(np.array(image))
            total += pot.emd2_1d(images[0], images[1], masses[0], masses[1])
        assert found.energy == pytest.approx(scale * total / 6 / 2, rel=1e-10)

    def test_orders_are_zero_truncated_poisson(self):
        drawn = MomentLabels(5).orders(40_000, generator())
        for rate, row in enumerate(drawn.numpy(), start=1):
            counts = np.bincount(row, minlength=40)[1:]
            expected = stats.poisson(rate).pmf(np.arange(1, len(counts) + 1)) / -math.expm1(-rate)
            many = 40_000 * expected > 10
            chi = ((counts - 40_000 * expected)[many] ** 2 / (40_000 * expected)[many]).sum()
            assert stats.chi2(many.sum() - 1).sf(chi) > 1e-4
        first = (drawn == 1).double().mean(dim=1).sum()
        assert float(first) == pytest.approx(MomentLabels(5).straight, abs=0.02)

    def test_moments_of_gaussian_laws_by_quadrature(self):
        lines = uniform_lines(2, 8, MomentLabels(5), generator(1))
        means = torch.randn(8, 3, generator=generator(2), dtype=torch.float64)
        variances = torch.rand(8, 3, generator=generator(3), dtype=torch.float64) * 2
        found = MomentLabels(5).of_law(lines, means, variances, 1.7)
        nodes, mass = np.polynomial.hermite_e.hermegauss(40)
        for line in range(8):
            for law in range(3):
                z = (float(means[line, law]) + math.sqrt(variances[line, law]) * nodes) / 1.7
                expected = 0.0
                for part in range(5):
                    order = int(lines.orders[part, line])
                    moment = (mass * z**order).sum() / mass.sum() / math.factorial(order)
                    expected += 1.7 * float(lines.psi[1 + part, line]) * moment
                assert float(found[line, law]) == pytest.approx(expected, rel=1e-9, abs=1e-12)

    def test_laws_of_many_samples_are_those_of_the_gaussian(self):
        """The two ways to the same number, of a class with 200,000 normal samples."""
        lines = uniform_lines(1, 5, MomentLabels(3), generator(1))
        x = torch.randn(1, 200_000, generator=generator(2), dtype=torch.float64)
        images = lines.theta.T * x
        share = (torch.full((200_000,), 1 / 200_000, dtype=torch.float64),) * 2
        y = torch.zeros(200_000, dtype=torch.long)
        sampled = MomentLabels(3).of_samples(lines, images, y, share, 1, 1.0)
        zero, one = torch.zeros(5, 1, dtype=torch.float64), torch.ones(5, 1, dtype=torch.float64)
        exact = MomentLabels(3).of_law(lines, zero, one, 1.0)
        torch.testing.assert_close(sampled, exact, atol=0.03, rtol=0)

    def test_sees_more_than_mean_and_deviation(self):
        """Classes of equal features, equal means and deviations, other skewness: exchanged between the
        halves of the features, which no Gaussian law sees.
        """
        skewed = torch.tensor([-1.0, -1.0, 2.0], dtype=torch.float64)
        x = torch.cat([skewed, -skewed]).repeat(20)[:, None]
        side = torch.cat([torch.zeros(3), torch.ones(3)]).repeat(20).long()
        one = ad.LabeledDataset(x, side)
        # Half of each class is of the other kind: mean and deviation stay, the third moment goes.
        other = ad.LabeledDataset(
            x, torch.where(torch.arange(120) // 6 % 2 == 0, side, 1 - side).long()
        )
        plain = {"generator": generator(), "control": False}
        gaussian = sliced_otdd(one, other, 200, **plain)
        assert gaussian.energy == pytest.approx(0, abs=1e-12)
        assert sliced_otdd(one, other, 200, projection="moments", **plain).energy > 1e-3

    def test_raw_features_of_large_scale_are_refused(self):
        a, b = (data.replace(x=1e60 * data.x) for data in (labeled(20), labeled(20, 1, shift=1.0)))
        with pytest.raises(ad.InputError, match="standardize=True"):
            sliced_otdd(a, b, 50, projection="moments", standardize=False, generator=generator())
        assert math.isfinite(sliced_otdd(a, b, 50, projection="moments").value)

    @pytest.mark.parametrize("form", FORMS)
    def test_squares_that_overflow_are_refused(self, form):
        a, b = (
            data.replace(x=1e30 * data.x).to(dtype=torch.float32)
            for data in (labeled(20), labeled(20, 1, shift=1.0))
        )
        if form in ("gaussian", "gaussian, plain", "principal"):
            with pytest.raises(ad.InputError, match="Use float64"):
                sliced_otdd(a, b, 60, generator=generator(), **FORMS[form])
        else:
            assert math.isfinite(sliced_otdd(a, b, 60, **FORMS[form]).value)


class TestLaws:
    @pytest.mark.parametrize("form", FORMS)
    def test_zero_from_itself_in_any_order(self, form):
        a = labeled(50, weighted=True)
        order = torch.randperm(50, generator=generator())
        for other in (a, a.subset(order)):
            assert sliced_otdd(a, other, 60, **FORMS[form]).energy == pytest.approx(0, abs=1e-12)

    @pytest.mark.parametrize("form", FORMS)
    def test_symmetric(self, form):
        a, b = labeled(50, weighted=True), labeled(41, 3, shift=0.3)
        there, back = (
            sliced_otdd(*pair, 60, generator=generator(), **FORMS[form])
            for pair in ((a, b), (b, a))
        )
        assert there.energy == pytest.approx(back.energy, rel=1e-10)
        assert there.standard_error == pytest.approx(back.standard_error, rel=1e-6, abs=1e-12)

    @pytest.mark.parametrize("form", FORMS)
    @pytest.mark.parametrize("scale", [1e-8, 1e-3, 7.0, 1e8])
    def test_grows_with_the_scale(self, form, scale):
        a, b = labeled(30), labeled(41, 3, shift=0.3)
        one, other = (
            sliced_otdd(*pair, 60, generator=generator(), **FORMS[form])
            for pair in ((a, b), [d.replace(x=scale * d.x) for d in (a, b)])
        )
        assert other.value == pytest.approx(scale * one.value, rel=1e-8)
        assert other.standard_error == pytest.approx(scale**2 * one.standard_error, rel=1e-6)

    @pytest.mark.parametrize("form", FORMS)
    @pytest.mark.parametrize("shift", [-3.0, 1e6])
    def test_does_not_change_when_both_move(self, form, shift):
        a, b = labeled(30), labeled(41, 3, shift=0.3)
        one, other = (
            sliced_otdd(*pair, 60, generator=generator(), **FORMS[form])
            for pair in ((a, b), [d.replace(x=d.x + shift) for d in (a, b)])
        )
        assert other.value == pytest.approx(one.value, rel=1e-6)

    @pytest.mark.parametrize("form", ["gaussian", "principal", "features alone"])
    def test_a_translation_is_exact(self, form):
        """W₂ along a line is then the part of the means alone, which is known."""
        a = labeled(60, d=4)
        v = torch.tensor([3.0, 0.0, -4.0, 1.0], dtype=torch.float64)
        found = sliced_otdd(a, a.replace(x=a.x + v), 50, **FORMS[form])
        weight = 1 + FORMS[form].get("label_weight", 1)
        assert found.value == pytest.approx(math.sqrt(26 * weight), rel=1e-10)
        assert found.standard_error < 1e-10

    @pytest.mark.parametrize("form", FORMS)
    def test_ordinary_oddities(self, form):
        """Single samples, coinciding points, samples without mass, float32."""
        one = ad.LabeledDataset([[0.0, 0.0]], ["a"])
        same = ad.LabeledDataset([[1.0, 2.0]] * 5, ["a", "a", "b", "b", "c"])
        far = ad.LabeledDataset([[1.0, 2.0], [1e9, 1e9]], ["a", "a"], weights=[1.0, 0.0])
        for left, right in ((one, same), (same, one), (one, far), (same, far)):
            found = sliced_otdd(left, right, 60, generator=generator(), **FORMS[form])
            assert math.isfinite(found.value) and found.standard_error >= 0
        assert sliced_otdd(same, far, 60, **FORMS[form]).value == pytest.approx(0, abs=1e-6)
        a, b = labeled(30), labeled(41, 3, shift=0.3)
        wide, narrow = (
            sliced_otdd(*pair, 60, generator=generator(), **FORMS[form]).value
            for pair in ((a, b), [d.to(dtype=torch.float32) for d in (a, b)])
        )
        assert narrow == pytest.approx(wide, rel=1e-4)

    def test_misuse(self):
        a, b = labeled(9), labeled(9, 1)
        with pytest.raises(ad.InputError, match="Did you mean 'moments'"):
            sliced_otdd(a, b, projection="moment")
        with pytest.raises(ad.InputError, match="unknown projection"):
            SlicedOTDD(b, projection="normal")
        with pytest.raises(ad.InputError, match="kind of directions"):
            sliced_otdd(a, b, directions="pca")
        with pytest.raises(ad.InputError, match="uniform directions"):
            sliced_otdd(a, b, projection="moments", directions="principal")
        with pytest.raises(ad.InputError, match="at least 24"):
            sliced_otdd(a, b, 23, directions="principal")
        with pytest.raises(ad.InputError, match="n_moments"):
            sliced_otdd(a, b, projection="moments", n_moments=0)
        with pytest.raises(ad.InputError, match="one feature space"):
            sliced_otdd(a, labeled(9, d=2), directions="principal")


def draws(a, b, n, labels, weight=1.0, seed=0):
    """Energies and controls of many lines, and the expectation of the control."""
    centre = slicing.middle(a, b)
    pair = Pair(a, b, labels, weight, Frame(centre, slicing.spread(centre, a, b)))
    lines = uniform_lines(a.dim, n, labels, generator(seed))
    scale = len(lines.psi) * a.dim / 2
    control, expected = pair.of_means(lines)
    return scale * pair.squares(lines), scale * control, scale * expected


CASES = {
    "shifted": (labeled(12), labeled(15, 1, shift=1.0)),
    "alike": (labeled(12), labeled(15, 1)),
    "own laws": (labeled(12).replace(law=labeled(30, 5).moments()), labeled(15, 1, shift=1.0)),
}


class TestControl:
    @pytest.mark.slow
    @pytest.mark.parametrize("labels", [GaussianLabels(), MomentLabels(3), None])
    @pytest.mark.parametrize("case", CASES)
    def test_the_expectation_of_the_control(self, case, labels):
        if labels is None and case == "own laws":
            pytest.skip("laws do not count")
        _, control, expected = draws(*CASES[case], 100_000, labels, 2.0)
        error = float(control.std()) / math.sqrt(100_000)
        assert float(control.mean()) == pytest.approx(float(expected), abs=4 * error)

    @pytest.mark.slow
    @pytest.mark.parametrize("lines", [50, 200])
    @pytest.mark.parametrize("labels", [GaussianLabels(), MomentLabels(3)], ids=["mean", "moments"])
    @pytest.mark.parametrize("case", CASES)
    def test_unbiased_with_an_honest_error(self, case, labels, lines):
        """Over many draws of few lines: the mean of what is controlled is the plain mean, its
        intervals hold the truth as often as they say, and it is less noisy.
        """
        n = 100_000
        values, control, expected = draws(*CASES[case], n, labels)
        parts = zip(values.split(lines), control.split(lines), strict=True)
        found = [controlled(v, c, expected) for v, c in parts]
        means = torch.stack([part.mean() for part in found])
        errors = torch.stack([part.std() for part in found]) / math.sqrt(lines)
        plain = values.reshape(-1, lines).mean(dim=1)
        gap = means - plain  # of the same draws, so that it shows small biases
        assert abs(float(gap.mean())) < 4 * float(gap.std()) / math.sqrt(len(gap))
        # as much as the plain mean, whose intervals know as little of heavy tails
        truth = float(values.mean())
        plain_errors = values.reshape(-1, lines).std(dim=1) / math.sqrt(lines)
        held, usual = (
            float(((m - truth).abs() < 2 * e).double().mean())
            for m, e in ((means, errors), (plain, plain_errors))
        )
        assert held > usual - 0.03 and held > (0.85 if lines == 50 else 0.9)
        assert float(errors.square().mean()) == pytest.approx(float(means.var()), rel=0.25)
        assert float(means.var()) < 1.03 * float(
            plain.var()
        )  # never worse, but for the weight's noise
        if case == "shifted" and isinstance(labels, GaussianLabels):
            assert float(means.var()) < 0.3 * float(plain.var())

    def test_not_worse_where_means_balance_spreads(self):
        """Means differ along one axis and spreads along the other, by as much: the plain value of
        features is nearly the same in all directions, and taking off the means whole would add noise.
        """
        x = torch.randn(400, 2, generator=generator(), dtype=torch.float64)
        x = x - x.mean(dim=0)
        spread = torch.tensor([1.0, 3.0], dtype=torch.float64)
        shift = torch.tensor([2.0, 0.0], dtype=torch.float64)
        a, b = ad.LabeledDataset(x, [0] * 400), ad.LabeledDataset(x * spread + shift, [0] * 400)
        values, control, expected = draws(a, b, 2000, None, 0.0)
        whole = values - (control - expected)
        assert float(whole.var()) > 2 * float(values.var())  # what this guards against
        assert float(controlled(values, control, expected).var()) < 1.01 * float(values.var())

    @pytest.mark.slow
    def test_gradients_are_unbiased_and_less_noisy(self):
        rho, target = labeled(8, d=2, k=2), labeled(9, 1, d=2, k=2, shift=2.0)
        found = {True: [], False: []}
        for seed in range(250):
            for control, kept in found.items():
                x = rho.x.clone().requires_grad_()
                energy = SlicedOTDD(target, 50, control=control, seed=seed)
                kept.append(torch.autograd.grad(energy(rho.replace(x=x)), x)[0])
        with_control, plain = (torch.stack(found[key]) for key in (True, False))
        gap = with_control - plain
        error = gap.std(dim=0) / math.sqrt(250)
        assert float((gap.mean(dim=0).abs() / error).max()) < 4.5  # of 16 numbers
        assert float(with_control.var(dim=0).sum()) < 0.5 * float(plain.var(dim=0).sum())

    def test_few_lines_are_left_alone(self):
        a, b = labeled(20), labeled(20, 1, shift=1.0)
        few = [
            sliced_otdd(a, b, 49, control=control, generator=generator())
            for control in (True, False)
        ]
        assert few[0] == few[1]


class TestPrincipal:
    @pytest.mark.parametrize("label_weight", [0.0, 1.0])
    @pytest.mark.parametrize("d", [2, 6, 40])
    def test_at_most_exact_and_more_than_uniform(self, d, label_weight):
        for seed in range(2):
            scales = 3.0 / torch.arange(1, d + 1, dtype=torch.float64)
            a = labeled(40, seed, d=d, weighted=True)
            b = labeled(50, seed + 9, d=d, k=2, shift=0.3)
            a, b = a.replace(x=a.x * scales), b.replace(x=b.x * scales.flip(0))
            cost = ad.GroundCost(label_weight=label_weight)
            exact = ad.otdd(a, b, cost=cost, solver=ad.ExactOT())
            uniform, principal = (
                sliced_otdd(
                    a, b, 300, directions=way, label_weight=label_weight, generator=generator(seed)
                )
                for way in ("uniform", "principal")
            )
            # each line of an orthonormal basis is a bound by itself: no error is allowed for there
            slack = 0.0 if d < 40 else 3 * principal.standard_error
            assert principal.energy <= exact.energy + slack
            if d > 2:
                assert principal.energy > 1.02 * uniform.energy
                assert principal.standard_error < uniform.standard_error

    def test_features_in_few_dimensions_have_no_noise(self):
        a, b = labeled(30), labeled(41, 3, shift=0.3)
        one, other = (
            sliced_otdd(a, b, 10, label_weight=0, directions="principal", generator=generator(seed))
            for seed in (0, 1)
        )
        assert one.energy == pytest.approx(other.energy, rel=1e-12) and one.standard_error == 0
        assert one.n_projections == 3

    @pytest.mark.slow
    @pytest.mark.parametrize(("d", "lines"), [(4, 240), (60, 240)], ids=["whole", "with a rest"])
    def test_an_honest_error(self, d, lines):
        a, b = labeled(12, d=d), labeled(14, 3, d=d, k=2, shift=0.2)
        runs = [
            sliced_otdd(a, b, lines, directions="principal", generator=generator(seed))
            for seed in range(150)
        ]
        energies = np.array([run.energy for run in runs])
        said = np.mean([run.standard_error**2 for run in runs])
        assert said == pytest.approx(energies.var(ddof=1), rel=0.4)
        held = [abs(run.energy - energies.mean()) < 2 * run.standard_error for run in runs]
        assert np.mean(held) > 0.88
        assert {run.n_projections for run in runs} == {lines}

    @pytest.mark.slow
    def test_axes_of_many_features(self):
        """By iteration, beside all axes by factorisation."""
        spread = torch.cat([torch.tensor([9.0, 6.0, 4.0]), torch.full((1197,), 0.02)]).double()
        x = torch.randn(1100, 1200, generator=generator(), dtype=torch.float64) * spread
        x = x @ torch.linalg.qr(torch.randn(1200, 1200, generator=generator(1)).double())[0]
        data = ad.LabeledDataset(x, [0] * 1100)
        found, _ = leading_axes((data,), 3)
        _, _, axes = torch.linalg.svd(x - x.mean(dim=0), full_matrices=False)
        torch.testing.assert_close((found.T @ axes[:3].T).abs(), torch.eye(3).double())
        torch.testing.assert_close(found.T @ found, torch.eye(3).double())


HOW = {
    "fd": ad.FeatureDriven(through_laws=True),
    "jd-fl": ad.JointFixedLabels(),
    "jd-diagonal": ad.JointFixedLabels(laws=ad.DiagonalMotion()),
    "jd-vl": ad.JointVariableLabels(),
}


class TestFlows:
    @pytest.mark.parametrize("dynamics", ["fd", "jd-fl", "jd-diagonal"])
    @pytest.mark.parametrize(
        "options",
        [
            {"projection": "moments"},
            {"projection": "moments", "standardize": False, "n_moments": 2},
            {"projection": "moments", "control": True},
            {"control": True},
        ],
        ids=lambda options: ",".join(map(str, options.values())),
    )
    def test_finite_differences(self, dynamics, options, monkeypatch):
        rho, target = labeled(24, weighted=True), labeled(31, 4, shift=1.0, weighted=True)
        rho, target = (data.replace(x=data.x / 4) for data in (rho, target))
        monkeypatch.setattr(slicing, "ENTRIES", 25 * 55)  # several groups
        how = HOW[dynamics]
        rho = how.start(rho)
        energy = SlicedOTDD(target, 60, **options)

        start = energy.begin(rho)  # the unit is that of the start

        def value(parameters):
            return energy.terms(how.attach(rho, parameters), start)[0][energy.name]

        leaves = {name: part.clone().requires_grad_() for name, part in how.parameters(rho).items()}
        gradients = torch.autograd.grad(value(leaves), list(leaves.values()))
        if options.get("control"):  # whose weight is no function of what moves: held where it was
            held = []

            def frozen(values, control, expected):
                if not held:
                    taken = values - controlled(values, control, expected)
                    held.append((taken / (control - expected)).detach())
                return values - held[0] * (control - expected)

            monkeypatch.setattr("advect.functionals.sliced.controlled", frozen)
            value({name: leaf.detach() for name, leaf in leaves.items()})
        for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True):
            direction = torch.randn(leaf.shape, generator=generator(7), dtype=torch.float64)
            if name == "covariance" and leaf.ndim == 3:
                direction = (direction + direction.mT) / 2
            h = 1e-6
            moved = [
                value({**leaves, name: (leaf + s * h * direction).detach()}).item() for s in (1, -1)
            ]
            slope = (moved[0] - moved[1]) / (2 * h)
            expected = pytest.approx(slope, rel=1e-4, abs=1e-7)
            assert float((gradient * direction).sum()) == expected, name

    @pytest.mark.slow
    @pytest.mark.parametrize("dynamics", HOW)
    @pytest.mark.parametrize(
        "options", [{"projection": "moments"}, {"control": True}], ids=["moments", "control"]
    )
    def test_reaches_the_target(self, dynamics, options):
        """Moments are steep far from the target: Adam, where others take long steps."""
        source, target = labeled(60), labeled(60, 6, shift=3.0)
        result = ad.flow(
            source,
            SlicedOTDD(target, 50, **options),
            dynamics=HOW[dynamics],
            integrator=ad.Adam(0.3) if "projection" in options else ad.Euler(0.3),
            n_steps=60 if "projection" in options else 30,
        )
        assert ad.otdd(result.dataset, target).value < 0.3 * ad.otdd(source, target).value

    def test_resumes_bit_for_bit(self, tmp_path):
        source, target = labeled(40), labeled(35, 6, shift=3.0)
        options = {"projection": "moments", "control": True}
        whole = ad.flow(source, SlicedOTDD(target, 50, **options), n_steps=4)
        callbacks = [ad.Checkpoint(tmp_path / "run", every=1)]
        ad.flow(source, SlicedOTDD(target, 50, **options), n_steps=2, callbacks=callbacks)
        again = ad.flow(
            source, SlicedOTDD(target, 50, **options), n_steps=4, resume=tmp_path / "run"
        )
        assert torch.equal(again.dataset.x, whole.dataset.x)

    def test_values_are_those_of_the_distance(self):
        """Of the same lines."""
        a, b = labeled(30), labeled(41, 3, shift=0.3)
        moments = {"projection": "moments"}
        for options in ({}, {"control": True}, moments, {"standardize": False, **moments}):
            found = SlicedOTDD(b, 50, seed=3, **options)(a)
            options = {"control": False} | options
            expected = sliced_otdd(a, b, 50, generator=generator(3), **options)
            assert float(found) == pytest.approx(expected.energy, rel=1e-12)

    def test_said_in_reports(self):
        target = labeled(10)
        assert SlicedOTDD(target).options == {"n_projections": 200, "label_weight": 1.0}
        assert SlicedOTDD(target, projection="moments", control=True).options == {
            "n_projections": 200,
            "label_weight": 1.0,
            "projection": "moments",
            "n_moments": 5,
            "control": True,
        }


def test_lines_of_a_part_are_those_of_the_whole():
    lines = uniform_lines(3, 7, MomentLabels(2), generator())
    part = lines.some(2, 5, torch.zeros(1))
    assert isinstance(part, Lines) and len(part) == 3 and part.theta.dtype == torch.float32
    assert torch.equal(part.orders, lines.orders[:, 2:5])
