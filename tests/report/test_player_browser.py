"""The report in a browser: it plays, answers pointer and keyboard, fits a phone, and asks the network for nothing."""

import pytest
import torch
from flow_cases import gaussians, seeded

import advect as ad

EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    target = gaussians(60, 1, shift=(9.0, 0.0)).replace(classes=("x", "y", EVIL))
    source = gaussians(60, 0).replace(classes=("a", "b", EVIL))
    metric = ad.Metric("spread", lambda rho: rho.x.std())
    options = {"integrator": ad.Euler(0.2), "callbacks": [ad.Recorder(), metric]}
    result = ad.flow(source, ad.OTDD(target), n_steps=8, **options)
    return result.report(tmp_path_factory.mktemp("plane") / "report.html", title=EVIL)


def page_of(source, x, n_steps, folder):
    options = {"integrator": ad.Euler(0.3), "callbacks": [ad.Recorder()], "n_steps": n_steps}
    result = ad.flow(source, ad.OTDD(source.replace(x=x)), **options)
    return result.report(folder / "report.html")


@pytest.fixture(scope="module")
def space(tmp_path_factory):
    source = ad.datasets.swiss_roll(80, generator=seeded())
    x = source.x * torch.tensor([1.0, 0.3, 1.0])
    return page_of(source, x, 4, tmp_path_factory.mktemp("space"))


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    source = ad.datasets.load("digits", n=60)
    return page_of(source, 1 - source.x, 6, tmp_path_factory.mktemp("images"))


def picture(page, selector):
    """What a canvas shows, to be compared."""
    return page.eval_on_selector(selector, "canvas => canvas.toDataURL()")


def go_to(page, frame):
    move = f"time => {{ time.value = {frame}; time.dispatchEvent(new Event('input')) }}"
    page.eval_on_selector("#time", move)


def step(page):
    return page.inner_text("#now").split(" · ")[0]


def until(page, condition):
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
        go_to(page, frame)
        assert step(page) == f"step {frame} of 6"
        mark = page.eval_on_selector("#charts .mark", "mark => mark.getAttribute('x1')")
        image = picture(page, "#grid button:nth-child(5) canvas")
        seen.add((picture(page, "#particles"), image, mark))
    views = list(zip(*seen, strict=True))
    assert [len(set(view)) for view in views] == [3, 3, 3]


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


def place_of(page, sample, frame=0) -> tuple[float, float]:
    """Where a sample must be on the screen, from the numbers in the page."""
    go_to(page, frame)
    return tuple(
        page.evaluate(
            """([i, frame]) => {
              const story = JSON.parse(document.getElementById("story").textContent);
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
    apart = torch.cdist(data.x, data.x).fill_diagonal_(9e9)
    lonely = int(apart.min(dim=1).values.argmax())  # no other near it
    before = picture(page, "#particles")
    page.mouse.move(*place_of(page, lonely))
    text = page.inner_text("#details")
    assert f"Sample {lonely}, class {('a', 'b', EVIL)[lonely % 3]}" in text
    assert picture(page, "#particles") != before
    page.mouse.move(2, 2)
    assert page.inner_text("#details") == ""
    page.mouse.click(*place_of(page, lonely, 8))  # pinned: it stays
    page.mouse.move(2, 2)
    assert f"Sample {lonely}," in page.inner_text("#details")
    assert page.input_value("#sample") == str(lonely)


def test_injected_scripts_do_not_run(plane, visit, tmp_path):
    """Were a name ever not escaped, the policy of the page would still stop it."""
    path, text = tmp_path / "forged.html", plane.read_text(encoding="utf-8")
    forged = "<script>window.forged = 1</script><img src=x onerror='window.forged = 2'>"
    path.write_text(text.replace("<main>", f"<main>{forged}"))
    page = visit(path, heard=(refused := []))
    assert page.evaluate("typeof window.forged") == "undefined"
    assert any("Content Security Policy" in text for text in refused)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_embedded_the_player_is_alone_and_plays(plane, browser, theme):
    page = browser.new_page(viewport={"width": 800, "height": 600})
    page.goto(f"{plane.as_uri()}#embed-{theme}")
    page.wait_for_selector("#play[aria-label=Pause]")
    while int(page.locator("#time").input_value()) < 3:
        page.wait_for_timeout(100)
    assert page.locator("html").get_attribute("data-theme") == theme
    assert page.locator("canvas#particles").is_visible() and page.locator("#play").is_visible()
    for hidden in ("h1", "footer", "#configuration-title", ".keys"):
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


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["plane", "space", "images"])
def test_it_can_be_read(name, width, scheme, readable, request):
    readable(request.getfixturevalue(name), width=width, scheme=scheme)


def test_keys_move_time_and_numbers_choose_samples(plane, visit):
    page = visit(plane)
    for key, expected in (("ArrowRight", 1), ("ArrowLeft", 0), ("End", 8), ("Home", 0)):
        page.keyboard.press(key)
        assert step(page) == f"step {expected} of 8"
    page.fill("#sample", "7")
    assert "Sample 7, class b" in page.inner_text("#details")
    page.fill("#sample", "700")
    assert page.inner_text("#details") == ""
    assert page.get_attribute("#sample", "aria-invalid") == "true"
