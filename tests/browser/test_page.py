"""The page in a real Chromium, against a real server with tiny random weights."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Pillow
from playwright.sync_api import Browser, Locator, Page, WebSocketRoute, expect, sync_playwright

import inline_core.server
from inline_core.settings import Settings
from tests import tiny
from tests.browser.page_nodes import specs_for_the_page
from tests.live import LiveServer, live_server

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PAGES = Path(inline_core.server.__file__).parent / "pages"
MAX_BYTES = 68 * 1024
# What Chromium itself writes for refused and failed requests; not an error of the page.
NETWORK = re.compile(r"Failed to load resource|WebSocket connection to|ERR_INTERNET_DISCONNECTED")
LONG = 30_000

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"{CHROMIUM} is not installed"),
]

NAMELESS = """() => {
  const controls = document.querySelectorAll(
    "a[href], button, input, select, textarea, progress, summary, dialog, video, audio, [tabindex]");
  const named = (one) => one.getAttribute("aria-label")
    || (one.getAttribute("aria-labelledby") || "").split(" ")
      .map((id) => document.getElementById(id)?.textContent || "").join("").trim()
    || [...(one.labels || [])].map((label) => label.textContent.trim()).join("")
    || (one.matches("a, button, summary") && (one.textContent.trim()
      || one.querySelector("img")?.alt));
  return [...controls].filter((one) => one.checkVisibility() && !named(one))
    .map((one) => one.outerHTML.slice(0, 120));
}"""

# Ratios of text to the first opaque background behind it, for everything that has text.
LOW_CONTRAST = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((part) => part / 255)
    .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
  const behind = (node) => {
    for (let one = node; one; one = one.parentElement) {
      const colour = parse(getComputedStyle(one).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  return [...document.querySelectorAll("body *")].filter((node) => node.checkVisibility()
      && !node.matches(":disabled, option, noscript")
      && [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim()))
    .map((node) => {
      const [one, two] = [light(parse(getComputedStyle(node).color)), light(behind(node))];
      const ratio = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
      return [ratio, node.textContent.trim().slice(0, 40)];
    }).filter(([ratio]) => ratio < 4.5);
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def shared(tiny_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A server with tiny Z-Image weights, a slow node and one that fails."""
    wanted = Settings(
        data_dir=tmp_path_factory.mktemp("page") / "data",
        models_dir=tiny_models,
        demo_model=False,
        threads=1,
        walkers=1,
    )
    with live_server(wanted, specs_for_the_page()) as running:
        yield running


@pytest.fixture
def page_server(shared: LiveServer) -> Iterator[LiveServer]:
    """The shared server, its queue empty and running after the test."""
    yield shared
    shared.http.post("/v1/queue/resume")
    for run in shared.http.get("/v1/runs").json()["runs"]:
        shared.http.delete(f"/v1/runs/{run['runId']}")
        shared.wait_until_final(run["runId"])


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A fresh profile; the page must not log errors."""
    context = browser.new_context(viewport={"width": 1280, "height": 860}, color_scheme="light")
    errors: list[str] = []
    opened = context.new_page()
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
    yield opened
    context.close()
    assert [error for error in errors if not NETWORK.search(error)] == []


def visit(page: Page, url: str, node: str = "test/slow", prompt: str = "") -> None:
    page.goto(url)
    expect(page.locator("#run")).to_be_enabled(timeout=LONG)
    page.get_by_label("Node").select_option(node)
    page.get_by_label("Prompt", exact=True).fill(prompt)


def run(page: Page) -> None:
    page.get_by_role("button", name="Run", exact=False).first.click()


def stage(page: Page, state: str) -> None:
    expect(page.locator("#stage")).to_have_attribute("data-state", state, timeout=LONG)


def newest(page: Page) -> Locator:
    return page.locator("#gallery img").first


def is_drawn(page: Page, picture: Locator) -> None:
    page.wait_for_function(
        "one => one.complete && one.naturalWidth > 0", arg=picture.element_handle()
    )


def png(side: int = 24) -> bytes:
    buffer = io.BytesIO()
    Pillow.new("RGB", (side, side), (200, 40, 40)).save(buffer, "PNG")
    return buffer.getvalue()


def make_takes(server: LiveServer, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    """Takes made without the page, one for each row of params; `prompt` is one of them."""
    wire = {"prompt": {"from": "words", "output": "text"}}
    runs = []
    for row in rows:
        params = {"steps": 1, "side": 16, **row}
        words = {"text": params.pop("prompt")}
        nodes = [
            {"id": "words", "type": "input/text", "params": words},
            {"id": "out", "type": "test/slow", "params": params, "inputs": wire},
        ]
        runs.append(server.submit(nodes, "out").json()["runId"])
    return [server.wait_until_final(run_id)["takes"][0] for run_id in runs]


def loaded_files() -> dict[str, str]:
    """What a browser fetches for the page: `index.html` and all that it and its modules name."""
    found: dict[str, str] = {}
    waiting = ["index.html"]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = (PAGES / name).read_text("utf-8")
            named = re.findall(r'(?:href|src|from|import)[= ]"\.?/?([\w.]+)"', found[name])
            waiting.extend(other for other in named if (PAGES / other).is_file())
    return found


def test_weight_and_hosts() -> None:
    files = loaded_files()
    assert {"style.css", "favicon.svg", "main.js", "stream.js"} <= files.keys()
    assert sum(len(text.encode()) for text in files.values()) < MAX_BYTES
    for name, text in files.items():
        plain = text.replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://\w|innerHTML|insertAdjacentHTML", plain), name
        assert text.count("\n") < 300, name


def test_from_prompt_to_take(page: Page, page_server: LiveServer) -> None:
    visit(page, page_server.url, "alibaba/z-image-turbo", "a red circle on a blue background")
    for name, value in (("Width", "64"), ("Height", "64"), ("Steps", "80")):
        page.get_by_label(name, exact=True).fill(value)
    run(page)
    page.wait_for_function("() => document.getElementById('bar').value > 0", timeout=LONG)
    expect(page.locator("#phase")).to_contain_text("of 80", timeout=LONG)
    expect(page.locator("#picture[data-preview]")).to_be_visible(timeout=LONG)
    assert (page.locator("#picture").get_attribute("src") or "").startswith("blob:")
    before = float(page.locator("#bar").evaluate("bar => bar.value"))
    page.wait_for_function("seen => document.getElementById('bar').value > seen", arg=before)
    stage(page, "done")
    expect(page.locator("#phase")).to_contain_text("Done in")
    expect(page.locator("#eta")).to_contain_text("Seed")
    expect(newest(page)).to_have_attribute("alt", "a red circle on a blue background")
    is_drawn(page, newest(page))
    is_drawn(page, page.locator("#picture"))
    expect(page).to_have_title("Inline Core")


def test_cancel(page: Page, page_server: LiveServer) -> None:
    visit(page, page_server.url, prompt="far too long")
    page.get_by_label("Steps", exact=True).fill("1000")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#phase")).to_contain_text("step", timeout=LONG)
    page.locator("#cancel").click()
    stage(page, "cancelled")
    expect(page.locator("#queue li")).to_have_count(0)
    assert page_server.http.get("/v1/runs").json()["runs"] == []


def test_problems_stand_at_their_fields(page: Page, page_server: LiveServer) -> None:
    visit(page, page_server.url)
    run(page)
    expect(page.locator("#prompt-error")).to_have_text("Type a prompt first.")
    page.get_by_label("Prompt", exact=True).fill("x")
    page.get_by_label("Side").fill("5000")
    page.get_by_label("Steps", exact=True).fill("0")
    run(page)
    for key, words in (("side", "at most 512"), ("steps", "at least 1")):
        expect(page.locator(f"#param-{key}-error")).to_contain_text(words)
        field = page.locator(f"#param-{key}")
        expect(field).to_have_attribute("aria-invalid", "true")
        expect(field).to_have_accessible_description(re.compile(words))
    expect(page.locator("#param-steps")).to_be_focused()
    page.get_by_label("Steps", exact=True).fill("3")
    expect(page.locator("#param-steps-error")).to_be_hidden()
    page.get_by_label("Side").fill("32")
    run(page)
    stage(page, "done")


def test_an_error_is_text(page: Page, page_server: LiveServer) -> None:
    visit(page, page_server.url, "test/fails", "anything")
    run(page)
    stage(page, "error")
    failure = page.get_by_role("alert").filter(has_text="8.1 GiB")
    expect(failure).to_contain_text("<b>or</b> close other programs")
    expect(failure).to_contain_text("out_of_memory")
    expect(failure).to_contain_text("8294")
    expect(failure.locator("b")).to_have_count(0)
    expect(page.locator("#last-errors summary")).to_contain_text("Last errors")


def test_reload_attaches_again(page: Page, page_server: LiveServer) -> None:
    visit(page, page_server.url, prompt="still there after a reload")
    page.get_by_label("Steps", exact=True).fill("900")
    run(page)
    expect(page.locator("#phase")).to_contain_text("of 900", timeout=LONG)
    page.reload()
    expect(page.locator("#phase")).to_contain_text("of 900", timeout=LONG)
    expect(page.locator("#picture[data-preview]")).to_be_visible()
    expect(page.get_by_label("Prompt", exact=True)).to_have_value("still there after a reload")
    expect(page.get_by_label("Steps", exact=True)).to_have_value("900")
    page.locator("#cancel").click()
    stage(page, "cancelled")


def test_a_broken_stream_is_taken_up(page: Page, page_server: LiveServer) -> None:
    opened: list[str] = []

    def relay(route: WebSocketRoute) -> None:
        opened.append(route.url)
        server = route.connect_to_server()
        seen = 0

        def on_message(message: str | bytes) -> None:
            nonlocal seen
            seen += 1
            if len(opened) == 1 and seen == 8:
                route.close(code=1011)
            elif len(opened) > 1 or seen < 8:
                route.send(message)

        server.on_message(on_message)

    page.route_web_socket(re.compile("/events"), relay)
    visit(page, page_server.url, prompt="a broken line")
    page.get_by_label("Steps", exact=True).fill("90")
    run(page)
    stage(page, "done")
    assert len(opened) == 2
    assert "after=" not in opened[0]
    assert re.search(r"after=\d+", opened[1])


def test_queue(page: Page, page_server: LiveServer) -> None:
    visit(page, page_server.url, prompt="first")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#queue-note")).to_contain_text("paused")
    run(page)
    expect(page.locator("#phase")).to_have_text("Waiting: the queue is paused")
    page.get_by_label("Prompt", exact=True).fill("second")
    run(page)
    rows = page.locator("#queue li")
    expect(rows).to_have_count(2)
    expect(rows.nth(1)).to_contain_text("#2")
    page.get_by_role("button", name="Cancel: second").click()
    expect(rows).to_have_count(1)
    page.get_by_role("button", name="Resume").click()
    stage(page, "done")
    expect(newest(page)).to_have_attribute("alt", "first")
    expect(rows).to_have_count(0)


def test_start_image(page: Page, page_server: LiveServer, tmp_path: Path) -> None:
    visit(page, page_server.url, prompt="from a picture")
    (tmp_path / "red.png").write_bytes(png())
    page.locator("#start-file").set_input_files(tmp_path / "red.png")
    expect(page.locator("#start-name")).to_have_text("red.png")
    is_drawn(page, page.locator("#start-thumb"))
    run(page)
    stage(page, "done")
    take = page_server.http.get("/v1/takes").json()["takes"][0]
    assert take["params"]["started_from_image"] is True
    page.get_by_role("button", name="Remove the start image").click()
    page.evaluate(
        """bytes => {
          const data = new DataTransfer();
          data.items.add(new File([new Uint8Array(bytes)], "dropped.png", {type: "image/png"}));
          for (const type of ["dragenter", "dragover", "drop"]) {
            document.getElementById("drop").dispatchEvent(
              new DragEvent(type, {dataTransfer: data, bubbles: true, cancelable: true}));
          }
        }""",
        list(png(32)),
    )
    expect(page.locator("#start-name")).to_have_text("dropped.png")
    page.locator("#start-file").set_input_files(
        {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"no picture"}
    )
    expect(page.locator("#start-error")).to_contain_text("invalid_asset")


def test_take_dialog(page: Page, page_server: LiveServer) -> None:
    older, take = make_takes(
        page_server,
        {"prompt": "an older one", "seed": 4},
        {"prompt": "one to keep", "seed": 4711, "side": 64, "mood": "wild"},
    )
    visit(page, page_server.url)
    page.get_by_role("button", name="one to keep").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("4711")
    expect(dialog).to_contain_text(re.compile("64 . 64"))
    with page.expect_download() as download:
        dialog.get_by_role("link", name="Download").click()
    assert download.value.suggested_filename == f"{take['id']}.png"
    stored = page_server.http.get(f"/v1/takes/{take['id']}/bytes").content
    assert download.value.path().read_bytes() == stored
    page.keyboard.press("ArrowRight")
    expect(dialog).to_contain_text("an older one")
    page.keyboard.press("ArrowLeft")
    dialog.get_by_role("button", name="Reuse settings").click()
    expect(dialog).to_be_hidden()
    expect(page.get_by_label("Prompt", exact=True)).to_have_value("one to keep")
    expect(page.get_by_label("Seed")).to_have_value("4711")
    expect(page.get_by_label("Side")).to_have_value("64")
    expect(page.get_by_label("Mood")).to_have_value("wild")
    page.get_by_role("button", name="one to keep").click()
    dialog.get_by_role("button", name="Use as start image").click()
    expect(page.locator("#start-name")).to_have_text("one to keep")
    is_drawn(page, page.locator("#start-thumb"))
    page.get_by_role("button", name="an older one").click()
    dialog.get_by_role("button", name="Delete").click()
    assert page_server.http.get(f"/v1/takes/{older['id']}/bytes").status_code == 200
    dialog.get_by_role("button", name="Really delete?").click()
    expect(dialog).to_be_hidden()
    expect(page.locator(f"[data-take={older['id']}]")).to_have_count(0)
    assert page_server.http.get(f"/v1/takes/{older['id']}/bytes").status_code == 410


def drop_on_the_page(page: Page, name: str, kind: str, data: bytes) -> None:
    page.evaluate(
        """([name, type, bytes]) => {
          const data = new DataTransfer();
          data.items.add(new File([new Uint8Array(bytes)], name, {type}));
          for (const kind of ["dragover", "drop"]) {
            document.getElementById("takes").dispatchEvent(
              new DragEvent(kind, {dataTransfer: data, bubbles: true, cancelable: true}));
          }
        }""",
        [name, kind, list(data)],
    )


def test_a_dropped_picture_fills_the_form(page: Page, page_server: LiveServer) -> None:
    params = {"prompt": "out of a file", "seed": 815, "side": 48, "mood": "wild"}
    (take,) = make_takes(page_server, params)
    data = page_server.http.get(f"/v1/takes/{take['id']}/bytes").content
    visit(page, page_server.url, "alibaba/z-image-turbo", "something else")
    drop_on_the_page(page, "take.png", "image/png", data)
    expect(page.get_by_label("Prompt", exact=True)).to_have_value("out of a file")
    expect(page.get_by_label("Node")).to_have_value("test/slow")
    expect(page.get_by_label("Seed")).to_have_value("815")
    expect(page.get_by_label("Mood")).to_have_value("wild")
    expect(page.locator("#recipe")).to_be_hidden()
    assert page.locator("#start-name").text_content() == "Choose, drop or paste a picture"
    drop_on_the_page(page, "red.png", "image/png", png())
    expect(page.locator("#recipe")).to_contain_text("no_recipe")
    page.locator("#recipe").get_by_role("button", name="Close").click()
    expect(page.locator("#recipe")).to_be_hidden()


def test_a_recipe_beyond_the_form_is_run_as_it_is(page: Page, page_server: LiveServer) -> None:
    wire = {"prompt": {"from": "words", "output": "text"}}
    slow = {"id": "slow", "type": "test/slow", "params": {"steps": 1, "side": 16, "seed": 5}}
    pick = {"image": {"from": "slow", "output": "image"}}
    nodes = [
        {"id": "words", "type": "input/text", "params": {"text": "picked"}},
        {**slow, "inputs": wire},
        {"id": "pick", "type": "image/from-batch", "inputs": pick},
    ]
    run_id = page_server.submit(nodes, "pick").json()["runId"]
    (take,) = page_server.wait_until_final(run_id)["takes"]
    before = page_server.http.get("/v1/runs?all=1&limit=1").json()["runs"][0]["runId"]
    visit(page, page_server.url)
    page.locator(f"[data-take={take['id']}] button").click()
    page.get_by_role("dialog").get_by_role("button", name="Reuse settings").click()
    card = page.locator("#recipe")
    expect(card).to_contain_text("a graph of 3 nodes")
    assert page.evaluate(NAMELESS) == []
    assert page.evaluate(LOW_CONTRAST) == []
    card.get_by_role("button", name="Run this recipe").click()
    expect(card).to_be_hidden()
    stage(page, "done")
    newest_run = page_server.http.get("/v1/runs?all=1&limit=1").json()["runs"][0]
    assert newest_run["runId"] != before
    assert newest_run["target"] == "pick"
    assert newest_run["meta"]["page"]["nodes"] == 3


WORKFLOW: dict[str, Any] = {
    "1": {
        "class_type": "EmptyImage",
        "inputs": {"width": 64, "height": 48, "batch_size": 1, "color": 255},
    },
    "2": {"class_type": "ImageInvert", "inputs": {"image": ["1", 0]}},
    "3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "blue"}},
    "4": {"class_type": "MakeItBetter", "inputs": {"image": ["1", 0]}, "_meta": {"title": "Magic"}},
    "5": {"class_type": "PreviewImage", "inputs": {"images": ["4", 0]}},
}


def test_a_dropped_comfyui_workflow_is_reported_and_run(
    page: Page, page_server: LiveServer
) -> None:
    visit(page, page_server.url)
    drop_on_the_page(page, "flow.json", "application/json", json.dumps(WORKFLOW).encode())
    card = page.locator("#recipe")
    expect(card).to_contain_text("flow.json is a ComfyUI workflow of 5 nodes")
    expect(card).to_contain_text("Magic (MakeItBetter): the node type 'MakeItBetter' is not known")
    assert page.evaluate(NAMELESS) == []
    assert page.evaluate(LOW_CONTRAST) == []
    card.get_by_role("button", name="Run what can be made of it").click()
    expect(card).to_be_hidden()
    stage(page, "done")
    run = page_server.http.get("/v1/runs?all=1&limit=1").json()["runs"][0]
    (take,) = page_server.run(run["runId"])["takes"]
    assert (take["nodeId"], take["width"], take["height"]) == ("3", 64, 48)
    data = page_server.http.get(f"/v1/takes/{take['id']}/bytes").content
    assert Pillow.open(io.BytesIO(data)).getpixel((0, 0)) == (255, 255, 0)
    drop_on_the_page(page, "broken.json", "application/json", b'{"nodes": [')
    expect(card).to_contain_text("ends too early")
    card.get_by_role("button", name="Close").click()


def test_gallery_has_pages(page: Page, page_server: LiveServer) -> None:
    make_takes(page_server, *({"prompt": f"number {n}", "seed": n} for n in range(26)))
    total = len(page_server.http.get("/v1/takes", params={"limit": 500}).json()["takes"])
    visit(page, page_server.url)
    tiles = page.locator("#gallery li")
    expect(tiles).to_have_count(24)
    expect(newest(page)).to_have_attribute("alt", "number 25")
    expect(newest(page)).to_have_attribute("loading", "lazy")
    more = page.get_by_role("button", name="Show more")
    more.click()
    expect(tiles).to_have_count(min(total, 48))
    make_takes(page_server, {"prompt": "made elsewhere"})
    expect(newest(page)).to_have_attribute("alt", "made elsewhere", timeout=LONG)


def test_fits_and_is_named(page: Page, page_server: LiveServer) -> None:
    long_word = "Donaudampfschifffahrtsgesellschaftskapitänsmütze" * 4
    make_takes(page_server, {"prompt": long_word})
    visit(page, page_server.url, prompt=long_word)
    page.get_by_label("Steps", exact=True).fill("900")
    run(page)
    page.locator("#advanced summary").click()
    expect(page.locator("#picture[data-preview]")).to_be_visible(timeout=LONG)
    expect(page.locator("#queue li")).to_have_count(1)
    assert page.evaluate(NAMELESS) == []
    for width in (360, 768, 1024, 1920):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.set_viewport_size({"width": 360, "height": 740})
    newest(page).click()
    assert page.evaluate(NAMELESS) == []
    assert page.locator("#viewer").evaluate("one => one.scrollWidth <= one.clientWidth")
    page.keyboard.press("Escape")
    expect(page.locator("#gallery button").first).to_be_focused()


def test_light_and_dark(page: Page, page_server: LiveServer, tmp_path: Path) -> None:
    make_takes(page_server, {"prompt": "to be looked at"})
    visit(page, page_server.url, prompt="colours")
    page.get_by_label("Side").fill("5000")
    run(page)
    expect(page.locator("#param-side-error")).to_be_visible()
    expect(newest(page)).to_be_visible()
    shades = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        page.screenshot(path=tmp_path / f"{scheme}.png")
        assert (tmp_path / f"{scheme}.png").stat().st_size > 10_000
        shades.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert page.evaluate(LOW_CONTRAST) == []
        moving = "getComputedStyle(document.getElementById('picture')).transitionDuration"
        assert page.evaluate(moving) in {"0s", "1e-05s"}
    assert shades[0] != shades[1]


def test_without_a_server(page: Page, page_server: LiveServer) -> None:
    visit(page, page_server.url, prompt="nobody hears this yet")
    banner = page.locator("#banner")
    expect(banner).to_be_hidden()
    page.context.set_offline(True)
    run(page)
    expect(banner).to_contain_text("cannot be reached")
    expect(page.locator("#problems")).to_contain_text("cannot be reached")
    page.context.set_offline(False)
    expect(banner).to_be_hidden(timeout=LONG)
    run(page)
    stage(page, "done")


def test_models_that_are_missing(page: Page, settings: Settings) -> None:
    folder = settings.models_dir / "loras"
    folder.mkdir(parents=True)
    (folder / "old.ckpt").write_bytes(b"pickle")
    tiny.settle(folder)
    with live_server(settings, specs_for_the_page()) as server:
        visit(page, server.url, "alibaba/z-image-turbo")
        notice = page.locator("#notices")
        expect(notice).to_contain_text("Files for Z-Image Turbo are missing")
        for category in ("diffusion_models", "vae", "text_encoders"):
            expect(notice).to_contain_text(f"models/{category}/")
        expect(page.locator("#bad-files")).to_contain_text("models/loras/old.ckpt")
        expect(page.locator("#bad-files")).to_contain_text("convert to safetensors")
        page.get_by_label("Node").select_option("test/slow")
        expect(notice).to_be_empty()


def test_demo_model_is_called_one(page: Page, page_server: LiveServer) -> None:
    files = page_server.http.get("/v1/model-files").json()
    files["files"] = [{**file, "source": "demo"} for file in files["files"]]
    page.route("**/v1/model-files", lambda route: route.fulfill(json=files))
    visit(page, page_server.url, "alibaba/z-image-turbo")
    expect(page.locator("#notices")).to_contain_text("Small demo model: coloured shapes only.")


@pytest.mark.parametrize("way", ["prefix", "token"])
def test_prefix_and_token(page: Page, settings: Settings, way: str) -> None:
    change: dict[str, Callable[[], Settings]] = {
        "prefix": lambda: settings.model_copy(update={"root_path": "/render"}),
        "token": lambda: settings.model_copy(update={"token": "let-me-in"}),
    }
    with live_server(change[way](), specs_for_the_page()) as server:
        if way == "token":
            assert page.goto(server.url) is not None
            expect(page.locator("body")).to_contain_text("needs a token")
        visit(page, server.url + {"prefix": "/render/", "token": "/?token=let-me-in"}[way])
        assert "let-me-in" not in page.url
        page.get_by_label("Prompt", exact=True).fill("reached all the same")
        page.get_by_label("Steps", exact=True).fill("60")
        run(page)
        expect(page.locator("#picture[data-preview]")).to_be_visible(timeout=LONG)
        stage(page, "done")
        expect(newest(page)).to_have_attribute("alt", "reached all the same")
        is_drawn(page, newest(page))
