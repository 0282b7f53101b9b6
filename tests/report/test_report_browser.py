"""The report in a browser: it plays, answers pointer and keyboard, fits a phone, and asks the
network for nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import advect as ad
from advect.datasets.trajectory import Frame
from advect.report import Story, write_report

EVIL = "<script>alert(1)</script>"


def gaussians(n: int, seed: int, **options) -> ad.LabeledDataset:
    return ad.datasets.gaussians(n, generator=torch.Generator().manual_seed(seed), **options)


@pytest.fixture(scope="module")
def plane(tmp_path_factory) -> Path:
    target = gaussians(60, 1, shift=(9.0, 0.0)).replace(classes=("x", "y", EVIL))
    source = gaussians(60, 0).replace(classes=("a", "b", EVIL))
    metric = ad.Metric("spread", lambda rho: rho.x.std())
    result = ad.flow(
        source,
        ad.OTDD(target),
        integrator=ad.Euler(0.2),
        n_steps=8,
        callbacks=[ad.Recorder(), metric],
    )
    return result.report(
        tmp_path_factory.mktemp("plane") / "report.html", title=EVIL, names=("here", "there")
    )


@pytest.fixture(scope="module")
def space(tmp_path_factory) -> Path:
    source = ad.datasets.swiss_roll(80, generator=torch.Generator().manual_seed(0))
    target = source.replace(x=source.x * torch.tensor([1.0, 0.3, 1.0]))
    result = ad.flow(
        source, ad.OTDD(target), integrator=ad.Euler(0.3), n_steps=4, callbacks=[ad.Recorder()]
    )
    return result.report(tmp_path_factory.mktemp("space") / "report.html")


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> Path:
    source = ad.datasets.load("digits", n=60)
    target = source.replace(x=1 - source.x)
    result = ad.flow(
        source, ad.OTDD(target), integrator=ad.Euler(0.3), n_steps=6, callbacks=[ad.Recorder()]
    )
    return result.report(tmp_path_factory.mktemp("images") / "report.html")


def picture(page: Any, selector: str) -> str:
    """What a canvas shows, to be compared."""
    return page.eval_on_selector(selector, "canvas => canvas.toDataURL()")


def step(page: Any) -> str:
    return page.inner_text("#now").split(" · ")[0]


def until(page: Any, condition: str) -> None:
    """Wait for a condition; the policy of the page forbids playwright to do so in it."""
    for _ in range(400):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never came true: {condition}")


def test_slider_moves_particles_images_and_charts(images, visit):
    page = visit(images)
    seen = set()
    for frame in (0, 3, 6):
        page.eval_on_selector(
            "#time", f"time => {{ time.value = {frame}; time.dispatchEvent(new Event('input')) }}"
        )
        assert step(page) == f"step {frame} of 6"
        mark = page.eval_on_selector("#charts .mark", "mark => mark.getAttribute('x1')")
        seen.add(
            (picture(page, "#particles"), picture(page, "#grid button:nth-child(5) canvas"), mark)
        )
    views = list(zip(*seen, strict=True))
    assert [len(set(view)) for view in views] == [3, 3, 3]


def test_the_images_are_those_of_the_frames(images, visit):
    """The first sample of the grid at the first frame, against its pixels."""
    page = visit(images)
    label = page.get_attribute("#grid button", "aria-label")
    row = int(label.split(",")[0].removeprefix("Sample "))
    source = ad.datasets.load("digits", n=60)
    shown = page.eval_on_selector(
        "#grid canvas",
        "canvas => [...canvas.getContext('2d').getImageData(0, 0, canvas.width, "
        "canvas.height).data]",
    )
    found = torch.tensor(shown).reshape(8, 8, 4)[..., 0] / 255
    assert float((found - source.samples[row]).abs().mean()) < 0.06
    assert label.endswith(f"class {source.labels[row]}")


@pytest.mark.slow
@pytest.mark.parametrize("focus", ["#time", "#particles", "body"])
def test_keys_move_time(plane, visit, focus):
    page = visit(plane)
    first = picture(page, "#particles")
    if focus != "body":
        page.focus(focus)
    for key, expected in (
        ("ArrowRight", 1),
        ("ArrowRight", 2),
        ("ArrowLeft", 1),
        ("End", 8),
        ("ArrowRight", 8),
        ("Home", 0),
    ):
        page.keyboard.press(key)
        assert step(page) == f"step {expected} of 8"
    assert picture(page, "#particles") == first
    page.keyboard.press("End")
    assert picture(page, "#particles") != first


def test_space_plays_and_pauses(plane, visit):
    page = visit(plane)
    page.keyboard.press(" ")
    assert page.get_attribute("#play", "aria-label") == "Pause"
    until(page, "document.getElementById('time').value > 1")
    page.keyboard.press(" ")
    assert page.get_attribute("#play", "aria-label") == "Play"
    still = step(page)
    page.wait_for_timeout(300)
    assert step(page) == still
    page.click("#play")
    until(page, "document.getElementById('play').getAttribute('aria-label') === 'Play'")
    assert step(page) == "step 8 of 8"  # to the end, and there it stops


def place_of(page: Any, sample: int, frame: int = 0) -> tuple[float, float]:
    """Where a sample must be on the screen, from the numbers in the page."""
    page.eval_on_selector(
        "#time", f"time => {{ time.value = {frame}; time.dispatchEvent(new Event('input')) }}"
    )
    return tuple(
        page.evaluate(
            """([i, frame]) => {
              const story = JSON.parse(document.getElementById("story").textContent).scenes[0];
              const bytes = Uint8Array.from(atob(story.points), (c) => c.charCodeAt(0)), at = new Int16Array(bytes.buffer);
              const stage = document.getElementById("particles"), box = stage.getBoundingClientRect();
              const [left, low, edge] = [40, 30, 12], [a, b] = story.extent, k = (frame * story.n + i) * 2;
              const scale = Math.min((box.width - left - edge) / (2 * a), (box.height - low - edge) / (2 * b)) / 32767;
              const [x, y] = [(box.width + left - edge) / 2 + scale * at[k], (box.height - low + edge) / 2 - scale * at[k + 1]];
              return [box.left + x, box.top + y];
            }""",
            [sample, frame],
        )
    )


def test_pointing_at_a_sample_tells_of_it(plane, visit):
    page = visit(plane)
    data = gaussians(60, 0)
    lonely = int(
        torch.cdist(data.x, data.x).fill_diagonal_(9e9).min(dim=1).values.argmax()
    )  # no other near it
    before = picture(page, "#particles")
    page.mouse.move(*place_of(page, lonely))
    text = page.inner_text("#details")
    assert f"Sample {lonely}, class {('a', 'b', EVIL)[lonely % 3]}" in text
    assert "coupled to" in text and "%" in text
    assert picture(page, "#particles") != before
    page.mouse.move(2, 2)
    assert page.inner_text("#details") == ""
    page.mouse.click(*place_of(page, lonely, 8))  # pinned: it stays
    page.mouse.move(2, 2)
    assert f"Sample {lonely}," in page.inner_text("#details")
    assert page.input_value("#sample") == str(lonely)


def test_a_sample_by_number_and_by_focus(plane, images, visit):
    page = visit(plane)
    page.fill("#sample", "7")
    assert "Sample 7, class b" in page.inner_text("#details")
    for wrong, answer in (
        ("700", "There is no sample 700: they go from 0 to 59."),
        ("-1", "There is no sample -1: they go from 0 to 59."),
        ("1.5", "A sample is a whole number, here from 0 to 59."),
    ):
        page.fill("#sample", wrong)
        assert page.inner_text("#details") == ""
        assert page.inner_text("#sample-help") == answer
        assert page.get_attribute("#sample", "aria-invalid") == "true"
    page.fill("#sample", "3")
    assert page.inner_text("#sample-help") == "or point at one"
    page = visit(images)
    page.focus("#grid button")
    first = page.inner_text("#details")
    page.keyboard.press("ArrowRight")
    second = page.inner_text("#details")
    assert first.startswith("Sample ") and second.startswith("Sample ") and first != second
    assert step(page) == "step 0 of 6"  # arrows move within the grid there
    assert page.locator("#details canvas[role=img]").count() >= 3  # start, end and a partner


def test_a_tap_tells_of_a_sample(plane, visit):
    page = visit(plane, has_touch=True, is_mobile=True, width=390)
    page.locator("#particles").scroll_into_view_if_needed()
    page.touchscreen.tap(*place_of(page, 3))
    assert page.inner_text("#details").startswith("Sample ")


def test_names_are_text(plane, visit):
    page = visit(plane)  # the fixture fails on an alert
    assert page.inner_text("h1") == EVIL
    assert EVIL in page.inner_text("#legend")
    assert page.evaluate("document.scripts.length") == 2
    assert page.locator("td, th").count() > 0 and page.locator("th script").count() == 0


def test_injected_scripts_do_not_run(plane, visit, tmp_path):
    """Were a name ever not escaped, the policy of the page would still stop it."""
    path, text = tmp_path / "forged.html", plane.read_text(encoding="utf-8")
    path.write_text(
        text.replace(
            "<main>",
            "<main><script>window.forged = 1</script><img src=x onerror='window.forged = 2'>",
        )
    )
    page = visit(path, heard=(refused := []))
    assert page.evaluate("typeof window.forged") == "undefined"
    assert any("Content Security Policy" in text for text in refused)


@pytest.mark.parametrize("name", ["plane", "space", "images"])
@pytest.mark.parametrize("width", [390, 768, 1200])
def test_no_screen_scrolls_sideways(name, width, visit, request):
    page = visit(request.getfixturevalue(name), width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_dark_by_wish_and_by_button(plane, visit):
    def ground(page):
        return page.evaluate(
            "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).reduce((a, b) => a + "
            "Number(b), 0)"
        )

    light, dark = visit(plane, scheme="light"), visit(plane, scheme="dark")
    assert ground(light) > 600 and ground(dark) < 150
    colours = picture(light, "#particles")
    light.click("#theme")
    assert ground(light) < 150 and picture(light, "#particles") != colours
    light.click("#theme")
    assert ground(light) > 600 and picture(light, "#particles") == colours


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_embedded_the_player_is_alone_and_plays(plane, browser, theme):
    page = browser.new_page(viewport={"width": 800, "height": 600})
    page.goto(f"{plane.as_uri()}#embed-{theme}")
    page.wait_for_selector("#play[aria-label=Pause]")
    while int(page.locator("#time").input_value()) < 3:
        page.wait_for_timeout(100)
    assert page.locator("html").get_attribute("data-theme") == theme
    assert page.locator("canvas#particles").is_visible() and page.locator("#play").is_visible()
    for hidden in ("h1", "footer", "#classes-title", "#run-title", ".keys"):
        assert not page.locator(hidden).first.is_visible()
    page.close()


def test_space_turns_by_drag_and_by_button(space, visit):
    page = visit(space)
    first = picture(page, "#particles")
    box = page.locator("#particles").bounding_box()
    page.mouse.move(box["x"] + 100, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 180, box["y"] + 120, steps=3)
    page.mouse.up()
    turned = picture(page, "#particles")
    page.click("[aria-label='Turn left']")
    assert len({first, turned, picture(page, "#particles")}) == 3


def test_the_player_covers_no_caption(images, visit):
    """Wherever one scrolls to read a caption, or the browser does, it is there to be read."""
    page = visit(images, width=390)
    seen = page.evaluate(
        """() => [...document.querySelectorAll(".player figcaption")].flatMap((caption) =>
          ["start", "center", "end", "nearest"].map((block) => {
          document.documentElement.scrollTop = 0;
          caption.scrollIntoView({ block, behavior: "instant" });
          const box = caption.getBoundingClientRect();
          const at = (share) => document.elementFromPoint(box.left + 20, box.top + share * box.height);
          return [0.1, 0.5, 0.9].every((share) => caption.contains(at(share)));
        }))"""
    )
    assert len(seen) == 8 and all(seen)


def test_amber_where_the_value_rose(tmp_path, visit):
    data = gaussians(20, 0)
    values = [9.0, 5.0, 6.0, 4.0, 4.0]
    frames = [Frame(k, value, data) for k, value in enumerate(values)]
    page = visit(write_report(Story(frames, status="rose"), tmp_path / "report.html"))

    def colour(selector, what):
        return page.eval_on_selector(selector, f"node => getComputedStyle(node).{what}")

    amber = colour(".status", "color")
    assert colour("#charts path.rose", "stroke") != colour("#charts path", "stroke")
    assert page.get_attribute("#charts path.rose", "d").count("M") == 1  # one of four steps
    told = {}
    for place in range(5):
        page.eval_on_selector(
            "#time", f"time => {{ time.value = {place}; time.dispatchEvent(new Event('input')) }}"
        )
        told[place] = (page.inner_text("#now").endswith("rose"), colour("#now", "color") == amber)
    assert told == {
        0: (False,) * 2,
        1: (False,) * 2,
        2: (True,) * 2,
        3: (False,) * 2,
        4: (False,) * 2,
    }
    assert "the value rose" in page.inner_text("#charts")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["plane", "space", "images"])
def test_it_can_be_read(name, width, scheme, readable, request):
    readable(request.getfixturevalue(name), width=width, scheme=scheme)


def test_a_class_can_be_shown_alone(plane, visit):
    page = visit(plane)
    everything = picture(page, "#particles")
    page.click("#legend button")
    assert page.get_attribute("#legend button", "aria-pressed") == "true"
    assert picture(page, "#particles") != everything
    page.click("#legend button")
    assert picture(page, "#particles") == everything


def test_everything_has_a_name_for_those_who_cannot_see_it(images, visit):
    page = visit(images)
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, input, canvas[role=img], svg, [role=region], [role=group]")]
          .filter((node) => !(node.getAttribute("aria-label") || node.textContent.trim() || node.labels?.length))
          .map((node) => node.outerHTML.slice(0, 80))"""
    )
    assert nameless == []
    assert page.locator("table caption").count() == page.locator("table").count()
    assert page.locator("h1").count() == 1


def test_print_shows_the_moments_and_hides_the_controls(images, visit):
    page = visit(images, scheme="dark")
    page.emulate_media(media="print")
    assert not page.is_visible("#time") and not page.is_visible("#play")
    assert page.locator("#film button").count() == 5
    assert len(page.pdf()) > 20_000


@pytest.mark.slow
def test_a_step_of_a_large_flow_is_quick(tmp_path, visit):
    generator = torch.Generator().manual_seed(0)
    start = ad.LabeledDataset(
        torch.randn(2000, 2, generator=generator), [k % 10 for k in range(2000)]
    )
    drift = torch.randn(2000, 2, generator=generator)
    frames = [Frame(k, 60.0 - k, start.replace(x=start.x + 0.1 * k * drift)) for k in range(60)]
    path = write_report(
        Story(frames, target=start.replace(x=start.x + 6 * drift), solver=ad.Sinkhorn(tol=1e-2)),
        tmp_path / "report.html",
    )
    assert path.stat().st_size < 3_000_000
    page = visit(path, heard=[])  # the browser remarks that pixels are read often
    times, loop = page.evaluate(
        """async () => {
          const time = document.getElementById("time"), stage = document.getElementById("particles"), times = [], loops = [];
          const middle = (values) => values.sort((a, b) => a - b)[values.length >> 1];
          for (let frame = 0; frame < 60; frame += 2) {
            const begun = performance.now();
            time.value = frame;
            time.dispatchEvent(new Event("input"));
            stage.getContext("2d").getImageData(0, 0, 1, 1); // waits until it is drawn
            times.push(performance.now() - begun);
            const between = performance.now();
            for (let k = 0, sum = 0; k < 2e6; k++) sum += Math.sqrt(k);
            loops.push(performance.now() - between);
            await new Promise(requestAnimationFrame);
          }
          return [middle(times), middle(loops)];
        }"""
    )
    assert times < 50 * max(
        1, loop / 8
    )  # milliseconds; a loop of 8 on an idle machine says how busy this one is
