"""Classifying a picture on a page of `evenhand serve`: answers, limits, the process of the model, a real browser."""

import base64
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest
from PIL import Image

from evenhand.core.errors import EvenhandError
from evenhand.runs.config import make_config
from evenhand.training.predict import load
from evenhand.training.run import train_run
from tests.processes import begin, end_of
from tests.report.browser import new_page, open_browser
from tests.report.served_runs import write_comparison, write_run
from tests.trained import draw

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytest.importorskip("starlette", reason="needs the extra: pip install 'evenhand[serve]'")
pytest.importorskip("uvicorn", reason="needs the extra: pip install 'evenhand[serve]'")

from evenhand.report import _try_page
from evenhand.report._predictor import Predictor, StillBusyError
from evenhand.report.serving import listen, make_app, make_server

expect = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install playwright)").expect

LOAD_MS = 170_000
"""The first picture starts a process that imports torch, which is slow on a machine with other work."""


@dataclass
class Site:
    """A server in a thread, with the real model in a process of its own."""

    address: str
    app: Any
    root: Path
    photos: Path

    @property
    def predictor(self) -> Predictor:
        return self.app.state.predictor

    @cached_property
    def _ids(self) -> dict[str, str]:
        content = httpx.get(f"{self.address}/runs.json").json()
        return {row["cells"][0]["text"]: row["id"] for row in [*content["runs"], *content["comparisons"]]}

    def ids(self) -> dict[str, str]:
        return self._ids

    @cached_property
    def token(self) -> str:
        page = httpx.get(f"{self.address}/try/{self.ids()['head']}").text
        return page.partition('data-token="')[2].partition('"')[0]

    def send(self, name: str, picture: Any, kind: str = "image/png", **headers: str) -> httpx.Response:
        """Send a picture as the page does."""
        known = {"content-type": kind, "x-evenhand-token": self.token, **headers}
        address = f"{self.address}/try/{self.ids()[name]}"
        answer = httpx.post(address, content=picture, headers=known, timeout=60)
        for _ in range(3):
            if answer.status_code != 503:
                break
            answer = httpx.post(address, content=picture, headers=known, timeout=60)
        return answer


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    top = tmp_path_factory.mktemp("try")
    photos = draw(top / "photos", {"cat, tabby": 12, "dog": 10, "<img src=x onerror=document.title='changed'>": 8})
    root = top / "runs"
    given: dict[str, Any] = {"data__source": str(photos), "data__image_size": 32, "epochs": 2, "objective": "ce"}
    run = train_run(make_config("photos", settings=["compute.precision=float32"], **given), root / "head").path
    compared = write_comparison(
        root / "compared",
        recommended="ce",
        runs=[{"objective": "ce", "seed": 0, "folder": "ce_seed0"}],
    )
    shutil.copytree(run, compared / "ce_seed0")
    write_run(root / "going", done=2, finished=False)
    write_comparison(root / "undecided")
    app = make_app(root)
    with listen("127.0.0.1", 0) as listening:
        server = make_server(app)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            yield Site(f"http://127.0.0.1:{listening.getsockname()[1]}", app, root, photos)
        finally:
            server.should_exit = True
            thread.join(20)
            app.state.predictor.close()


@pytest.fixture(autouse=True)
def unlimited(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tests send more pictures in a minute than a person; one test sets the limit itself."""
    if "site" in request.fixturenames:
        monkeypatch.setattr(_try_page.TryPages, "_may_go_on", lambda _: True)


def picture_of(site: Site, name: str = "dog/1.png") -> bytes:
    return (site.photos / name).read_bytes()


@pytest.mark.parametrize("name", ["head", "compared"])
def test_the_answer_is_that_of_predict(site: Site, name: str) -> None:
    path = site.photos / "dog" / "1.png"
    answer = site.send(name, path.read_bytes()).json()
    expected = load(site.root / name).predict(path)
    given = {row["name"]: row["probability"] for row in answer["classes"]}
    assert answer["classes"][0]["name"] == expected.labels[0]
    assert given == pytest.approx(dict(zip(expected.class_names, expected.probabilities[0].tolist(), strict=True)))
    seen = Image.open(io.BytesIO(base64.b64decode(answer["seen"].partition(",")[2])))
    assert seen.size == (28, 28) or seen.size == (32, 32)


def test_a_training_picture_is_most_similar_to_itself(site: Site) -> None:
    trained = json.loads((site.root / "head" / "splits.json").read_text())["train"]
    answer = site.send("head", picture_of(site, trained[0])).json()
    assert len(answer["similar"]) == 6
    assert answer["similar"][0]["id"] == trained[0]
    assert answer["similar"][0]["similarity"] == pytest.approx(1, abs=1e-3)  # features are kept in float16
    values = [each["similarity"] for each in answer["similar"]]
    assert values == sorted(values, reverse=True)
    assert {each["id"] for each in answer["similar"]} <= set(trained)


def test_similar_pictures_are_absent_without_their_source(site: Site) -> None:
    hidden = site.photos.rename(site.photos.with_name("elsewhere"))
    try:
        os.utime(next((site.root / "compared").glob("*/weights/best.safetensors")))  # so that it is loaded again
        answer = site.send("compared", (hidden / "dog" / "1.png").read_bytes()).json()
    finally:
        hidden.rename(site.photos)
    assert answer["similar"] == []
    assert len(answer["classes"]) == 3


def bomb(width: int, height: int) -> bytes:
    """Return a small PNG that declares many pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return len(content).to_bytes(4, "big") + kind + content + zlib.crc32(kind + content).to_bytes(4, "big")

    header = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([8, 0, 0, 0, 0])
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is empty"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "it is not an image"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 50, "it is not an image"),
        (bomb(20_000, 20_000), "more than 178 million pixels"),
        (bomb(9000, 9000), "9,000 x 9,000 pixels; at most 50 million"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "it is not an image"),
    ],
)
def test_what_is_no_picture_is_refused_in_one_sentence(site: Site, content: bytes, words: str) -> None:
    answer = site.send("head", content)
    assert answer.status_code == 422
    assert words in answer.json()["error"]
    assert site.send("head", picture_of(site)).status_code == 200


def encoded(image: Image.Image, kind: str, **given: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **given)
    return file.getvalue()


def turned() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    exif[0x8825] = {1: "N"}
    return exif


def odd_pictures(path: Path) -> dict[str, tuple[bytes, str]]:
    """Return pictures that are unusual but fine, and their type: the answer is that of predict."""
    image = Image.open(path).convert("RGB")
    see_through, frames = image.convert("RGBA"), [image.rotate(90 * i) for i in range(4)]
    see_through.putalpha(128)
    grey = image.convert("L")
    return {
        "EXIF": (encoded(image, "jpeg", exif=turned()), "image/jpeg"),
        "16 bit": (encoded(Image.fromarray(np.asarray(grey).astype(np.uint16) * 257), "png"), "image/png"),
        "CMYK": (encoded(image.convert("CMYK"), "jpeg"), "image/jpeg"),
        "palette": (encoded(image.convert("P"), "png", transparency=3), "image/png"),
        "alpha": (encoded(see_through, "png"), "image/png"),
        "one bit": (encoded(grey.convert("1"), "png"), "image/png"),
        "animated GIF": (encoded(image, "gif", save_all=True, append_images=frames), "image/gif"),
        "animated WebP": (encoded(image, "webp", save_all=True, append_images=frames), "image/webp"),
        "one pixel": (encoded(image.resize((1, 1)), "png"), "image/png"),
        "a line": (encoded(image.resize((3000, 1)), "png"), "image/png"),
        "another type than declared": (encoded(image, "bmp"), "image/png"),
        "more behind its end": (path.read_bytes() + bytes(5000), "image/png"),
    }


def test_odd_pictures_are_answered_as_by_predict(site: Site, tmp_path: Path) -> None:
    model = load(site.root / "head")
    for name, (content, kind) in odd_pictures(site.photos / "dog" / "1.png").items():
        (tmp_path / "picture").write_bytes(content)
        try:
            expected = model.predict(tmp_path / "picture").probabilities[0].tolist()
        except EvenhandError:
            expected = None
        answer = site.send("head", content, kind)
        assert answer.status_code == (422 if expected is None else 200), (name, answer.text)
        if expected is not None:
            given = {row["name"]: row["probability"] for row in answer.json()["classes"]}
            assert [given[each] for each in model.class_names] == pytest.approx(expected), name
        else:
            assert "\n" not in answer.json()["error"], name
    assert len(expected or ()) == 3


def hostile_pictures(path: Path) -> dict[str, bytes]:
    whole = path.read_bytes()
    jpeg = encoded(Image.open(path).convert("RGB"), "jpeg")

    def chunk(kind: bytes, content: bytes) -> bytes:
        return len(content).to_bytes(4, "big") + kind + content + zlib.crc32(kind + content).to_bytes(4, "big")

    text = chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(80 * 2**20)))
    return {
        "text bomb": whole[:33] + text + whole[33:],
        "wrong checksum": whole[:-20] + b"xxxx" + whole[-16:],
        "no size": bomb(0, 0),
        "negative size": bomb(2**32 - 1, 1),
        "a line of 2^31": bomb(2**31 - 1, 1),
        "cut JPEG": jpeg[: len(jpeg) // 2],
        "start of a JPEG": b"\xff\xd8\xff\xe0",
        "start of a GIF": b"GIF89a\xff\xff\xff\xff",
        "archive": b"PK\x03\x04" + bytes(200),
        "JSON": b'{"picture": null}',
        "form": b"--x\r\nContent-Disposition: form-data; name=a; filename=b.png\r\n\r\n" + whole + b"\r\n--x--",
        "a path": str(path).encode(),
        "a pickle": b"\x80\x04cos\nsystem\n(S'true'\ntR.",
    }


def test_hostile_pictures_are_one_sentence(site: Site) -> None:
    path = site.photos / "dog" / "1.png"
    for name, content in hostile_pictures(path).items():
        answer = site.send("head", content)
        assert answer.status_code in (200, 422), (name, answer.text)
        if answer.status_code == 422:
            error = answer.json()["error"]
            assert len(error) < 300, name
            assert not any(each in error for each in ("\n", "Traceback", str(site.root))), name
    assert site.send("head", picture_of(site)).status_code == 200


def test_a_cut_off_picture_is_refused(site: Site) -> None:
    answer = site.send("head", picture_of(site)[:300])
    assert answer.status_code == 422
    assert "cannot be read" in answer.json()["error"]


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "image/svg+xml", "", "png", "image/"]
)
def test_other_types_are_refused(site: Site, kind: str) -> None:
    answer = site.send("head", picture_of(site), kind)
    assert (answer.status_code, "Pictures are jpeg, png" in answer.json()["error"]) == (415, True)


def test_pictures_that_are_too_large_are_refused_declared_or_not(site: Site) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(64):
            yield bytes(2**20)

    assert "at most 20 MB" in site.send("head", bytes(_try_page.LARGEST + 1)).json()["error"]
    try:
        status = site.send("head", endless()).status_code
    except httpx.TransportError:  # the server answered and closed before all of it was sent
        status = 413
    assert status == 413
    assert site.send("head", picture_of(site)).status_code == 200


def test_other_sites_and_requests_without_the_token_are_refused(site: Site) -> None:
    picture = picture_of(site)
    assert site.send("head", picture, origin="http://evil.example").status_code == 403
    assert site.send("head", picture, origin="null").status_code == 403
    assert site.send("head", picture, **{"x-evenhand-token": "guess"}).status_code == 403
    assert site.send("head", picture, **{"x-evenhand-token": ""}).status_code == 403
    assert site.send("head", picture, host="evil.example").status_code == 400
    assert site.send("head", picture, origin=site.address).status_code == 200
    asked = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    preflight = httpx.options(f"{site.address}/try/{site.ids()['head']}", headers=asked)
    assert preflight.status_code == 405
    assert "access-control-allow-origin" not in preflight.headers
    assert httpx.put(f"{site.address}/try/{site.ids()['head']}", content=picture).status_code == 405


def test_the_rate_is_limited(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    pages = next(route.endpoint.__self__ for route in site.app.routes if route.path == "/try/{id}")
    monkeypatch.setattr(pages, "times", type(pages.times)(maxlen=_try_page.MOST))
    answers = [site.send("head", b"no picture").status_code for _ in range(_try_page.MOST + 1)]
    assert answers == [422] * _try_page.MOST + [429]
    monkeypatch.setattr(_try_page, "MOST_SECONDS", 0.0)
    assert site.send("head", picture_of(site)).status_code == 200


def test_only_what_has_a_model_has_a_page(site: Site) -> None:
    ids, rows = site.ids(), httpx.get(f"{site.address}/runs.json").json()
    tried = {row["cells"][0]["text"]: row["try"] for row in [*rows["runs"], *rows["comparisons"]]}
    assert tried["head"] == f"/try/{ids['head']}"
    assert tried["going"] is None
    for path in (f"/try/{ids['going']}", "/try/x", "/try/..%2fhead", "/try/"):
        assert httpx.get(site.address + path).status_code == 404
    answer = site.send("undecided", picture_of(site))
    assert answer.status_code == 422
    assert "recommends nothing; run evenhand compare again" in answer.json()["error"]
    assert str(site.root) not in answer.text


def test_a_killed_process_is_one_sentence_and_starts_again(site: Site) -> None:
    assert site.send("head", picture_of(site)).status_code == 200
    process = site.predictor.process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    threading.Timer(0.3, process.kill).start()
    answer = site.send("head", picture_of(site))
    why = "The process of the model ended (killed by signal 9); it starts again with the next picture."
    assert (answer.status_code, answer.json()) == (422, {"error": why})
    assert site.send("head", picture_of(site)).status_code == 200
    assert site.predictor.process is not process


def test_a_process_that_hangs_is_stopped_and_one_that_loads_is_waited_for(tmp_path: Path) -> None:
    predictor = Predictor(seconds=0.5, wait_seconds=30)
    predictor.process = subprocess.Popen(["sleep", "60"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with pytest.raises(EvenhandError, match="took too long and was stopped; it starts again with the next picture"):
        predictor.classify(tmp_path, b"x" * 2**21)  # more than a pipe holds
    assert predictor.process is None
    predictor = Predictor(seconds=30, wait_seconds=0.2)
    predictor.process = subprocess.Popen(["sleep", "60"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with pytest.raises(StillBusyError, match="still loading"):
        predictor.classify(tmp_path, b"")
    predictor.close()


def test_an_idle_process_ends(tmp_path: Path) -> None:
    answer = json.dumps({"classes": []})
    code = (
        "import sys; from evenhand.core.frames import read_frame as r, write_frame as w; i, o = sys.stdin.buffer, "
        f"sys.stdout.buffer\nwhile True: r(i), r(i), w(o, {answer.encode()!r})"
    )
    predictor = Predictor(idle_seconds=0.3)
    predictor.process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process = predictor.process
    assert predictor.classify(tmp_path, b"") == {"classes": []}
    assert process.wait(20) == -signal.SIGKILL


def serve_without_torch(root: str, name: str, picture: bytes) -> None:
    """Ask for all pages and send a picture; then torch must not have been imported here."""
    for each in [each for each in sys.modules if each.split(".")[0] in ("torch", "evenhand", "torchvision")]:
        del sys.modules[each]
    from starlette.testclient import TestClient

    from evenhand.report.serving import make_app

    app = make_app(Path(root))
    client = TestClient(app, base_url="http://127.0.0.1")
    try:
        rows = client.get("/runs.json").json()["runs"]
        address = next(row["try"] for row in rows if row["cells"][0]["text"] == name)
        token = client.get(address).text.partition('data-token="')[2].partition('"')[0]
        headers = {"content-type": "image/png", "x-evenhand-token": token}
        assert app.state.predictor.process is None  # until the first picture
        status = 503
        while status == 503:
            status = client.post(address, content=picture, headers=headers).status_code
        assert status == 200, status
        assert "torch" not in sys.modules
    finally:
        app.state.predictor.close()


def test_the_server_itself_never_imports_torch(site: Site, tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    process = begin(serve_without_torch, str(site.root), "head", picture_of(site), log=log)
    assert end_of(process, 180) == 0, log.read_text()


def test_nothing_is_stored(site: Site) -> None:
    before = {path: path.stat().st_mtime_ns for path in site.root.rglob("*")}
    mark = np.random.default_rng(7).integers(0, 256, (40, 40, 3), np.uint8)
    Image.fromarray(mark).save(file := io.BytesIO(), "PNG")
    assert site.send("head", file.getvalue()).status_code == 200
    assert {path: path.stat().st_mtime_ns for path in site.root.rglob("*")} == before
    process = site.predictor.process
    assert process is not None
    if (opened := Path(f"/proc/{process.pid}/fd")).is_dir():
        printed = os.readlink(opened / "2")  # a file of pytest
        files = {os.readlink(each) for each in opened.iterdir() if os.path.lexists(each)} - {printed}
        assert not [each for each in files if "(deleted)" in each]


# ---- In a browser

DROP = """([content, name, type, event]) => {
  const bytes =
    typeof content === "number"
      ? new Uint8Array(content)
      : Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
  const data = new DataTransfer();
  if (name) data.items.add(new File([bytes], name, { type }));
  else data.setData("text/uri-list", "http://example.org/cat.jpg");
  const options = { bubbles: true, cancelable: true };
  const target = document.querySelector("#give");
  if (event === "paste") {
    return !document.body.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, ...options }));
  }
  const kinds = ["dragenter", "dragover", "drop"];
  return kinds.map((kind) => !target.dispatchEvent(new DragEvent(kind, { dataTransfer: data, ...options }))).at(-1);
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    with open_browser() as opened:
        yield opened


@pytest.fixture
def page(browser: "Browser", site: Site) -> Iterator["Page"]:
    with new_page(browser, viewport={"width": 1100, "height": 800}) as opened:
        opened.goto(site.address)
        opened.wait_for_selector("#runs .tick input")
        opened.locator("#runs tr").filter(has_text="head").get_by_role("link", name="try it").click()
        expect(opened.locator("#give")).to_be_visible()
        yield opened
        assert "evenhand" in opened.title(), "a name from outside was run"


def give(page: "Page", content: bytes | int, name: str = "a.png", kind: str = "image/png", event: str = "drop") -> None:
    """Give a picture, or so many bytes of zero, to the page."""
    known = content if isinstance(content, int) else base64.b64encode(content).decode()
    given = [known, name, kind, event]
    assert page.evaluate(DROP, given), "the browser would open the file itself"


def assert_answered(page: "Page") -> None:
    expect(page.locator("#classes tbody tr")).to_have_count(3, timeout=LOAD_MS)
    expect(page.locator("#state")).not_to_have_class("error")


def test_a_dropped_picture_is_classified(page: "Page", site: Site) -> None:
    give(page, picture_of(site))
    assert_answered(page)
    expected = load(site.root / "head").predict(site.photos / "dog" / "1.png")
    first = page.locator("#classes tbody tr").first
    expect(first.locator("th")).to_contain_text(str(expected.labels[0]))
    expect(first).to_contain_text(f"{expected.probabilities.max():.1%}")
    expect(first.locator("small")).to_contain_text(re.compile(r"\d+ of \d+ test images of this run right"))
    expect(page.locator("#state")).to_have_text(re.compile(r"^[^(]+, [\d.]+%$"))
    expect(page.locator("#model")).to_contain_text("head")
    expect(page.locator("#pictures li")).to_have_count(6)
    assert page.eval_on_selector_all("#pictures img, #seen", "all => all.every((each) => each.naturalWidth > 0)")


def test_a_pasted_picture_is_classified(page: "Page", site: Site) -> None:
    give(page, picture_of(site), event="paste")
    assert_answered(page)


def test_a_chosen_file_is_classified(page: "Page", site: Site) -> None:
    page.set_input_files("#file", site.photos / "dog" / "1.png")
    assert_answered(page)


def test_a_picture_of_the_camera_is_classified(page: "Page") -> None:
    page.get_by_role("button", name="use the camera").click()
    while not page.evaluate("document.querySelector('#video').videoWidth"):
        page.wait_for_timeout(50)
    page.get_by_role("button", name="take the picture").click()
    assert_answered(page)
    expect(page.locator("#view")).to_be_hidden()


def test_what_cannot_be_classified_is_explained(page: "Page", site: Site) -> None:
    for content, name, kind, words in (
        (b"hello", "a.txt", "text/plain", "Pictures are jpeg, png"),
        (b"hello", "a.png", "image/png", "cannot be read: it is not an image"),
        (b"", "a.png", "image/png", "empty"),
        (20 * 2**20 + 1, "a.png", "image/png", "at most 20 MB"),
        (b"", "", "", "not a picture file"),
    ):
        page.reload()
        give(page, content, name, kind)
        expect(page.locator("#state.error")).to_contain_text(words)
        give(page, picture_of(site))
        assert_answered(page)


def test_another_site_cannot_classify_with_a_visitors_browser(browser: "Browser", site: Site) -> None:
    """A page of another origin on this machine: the browser asks first, and is refused."""
    address = f"{site.address}/try/{site.ids()['head']}"
    context = browser.new_context()
    page = context.new_page()
    page.route("http://localhost:1/", lambda route: route.fulfill(body="<p>other</p>", content_type="text/html"))
    page.goto("http://localhost:1/")
    asked = "(to) => fetch(to, {method: 'POST', body: 'x', headers: {'Content-Type': 'image/png'}}).then(() => 'read')"
    assert page.evaluate(f"({asked})({address!r}).catch(() => 'refused')") == "refused"
    simple = "(to) => fetch(to, {method: 'POST', body: 'x', mode: 'no-cors'}).then(() => 'sent')"
    count = site.predictor._queue._work_queue.qsize()
    page.evaluate(f"({simple})({address!r}).catch(() => 'refused')")
    assert site.predictor._queue._work_queue.qsize() == count
    context.close()


def test_it_fits_a_phone(browser: "Browser", site: Site) -> None:
    with new_page(browser, viewport={"width": 360, "height": 740}) as page:
        page.goto(f"{site.address}/try/{site.ids()['head']}")
        give(page, picture_of(site))
        assert_answered(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_server_that_is_gone_is_named(browser: "Browser", site: Site) -> None:
    with new_page(browser) as page:
        page.goto(f"{site.address}/try/{site.ids()['head']}")
        page.route("**/try/*", lambda route: route.abort())
        give(page, picture_of(site))
        expect(page.locator("#state.error")).to_contain_text("The server does not answer")


def test_a_model_that_loads_long_is_asked_again(page: "Page", site: Site) -> None:
    answers = [503, 503, 200]
    began = time.monotonic()

    def answer(route: Any) -> None:
        status = answers.pop(0)
        if status == 503:
            route.fulfill(status=503, json={"error": "still loading"})
        else:
            route.continue_()

    page.route("**/try/*", answer)
    give(page, picture_of(site))
    assert_answered(page)
    assert not answers
    assert time.monotonic() - began < 180
