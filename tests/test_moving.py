"""Pictures that the reader moves: by keys and pointer, from a file, with the network off; still without a script."""
import json
import re
from html import unescape

import pytest
import torch
from browser import chromium
from chapters import NBS, ROOT

from hot_nbdev.book import moving

FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
         "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND"]
N = 3
WEIGHTS = [[0.5, 0.25, 0.25], [0.1, 0.8, 0.1], [0, 0, 1]]
DATA = {
    "looks": {"maps": [WEIGHTS, WEIGHTS], "full": [[1 + (i * j) % 5 for j in range(N * N)] for i in range(N * N)]},
    "kronecker": {"a": [[1, 2], [0, 3]], "b": [[1, 0, -1], [2, 1, 0]]},
    "modeproduct": {"x": [[[4 * (3 * i + j) + k for k in range(4)] for j in range(3)] for i in range(2)],
                    "matrices": [[[1, 1], [-1, 1]], [[1, 0, 1], [0, 1, 0]], [[1, 1, 1, 1], [0, 0, 0, 1]]]},
    "leak": {"series": [1.0, -1.0, 0.5], "values": [-2.0, 0.0, 0.5, 2.0], "start": 2, "outputs": [
        {"name": "leaks", "by_value": [[v / 5, 1.0, v] for v in (-2, 0, 0.5, 2)]},
        {"name": "does not", "by_value": [[0.3, 1.0, v] for v in (-2, 0, 0.5, 2)]}]},
    "rank": {"pixels": [[0, 100], [50, 25]], "left": [[3.0, 1.0], [1.0, -3.0]], "right": [[1.0, 2.0], [2.0, -1.0]],
             "middle": 40.0, "errors": [0.5, 0.0]},
    "shift": {"steps": [0, 10, 20], "shift": [1, 2], "errors": [1.0, 0.5, 0.25],
              "maps": [[[[33, 33, 34]] * 3, [[20, 20, 60]] * 3, [[0, 0, 100], [100, 0, 0], [0, 100, 0]]]] * 2},
    "dial": {"alphas": [0, 0.25, 0.5, 1], "templates": [[[100, -50], [20, 0]], [[40, 40], [40, -40]]],
             "squares": [[1, 0], [0.6, 0.1], [0.4, 0.2], [0.5, 0.5]],
             "parameters": [10, 2000], "rivals": [[1, 30], [2, 4000]],
             "runs": [{"name": "narrow", "sign": 1, "open": 0, "parameters": 10, "epochs": 40,
                       "errors": [0.0002, 0.15, None, 0.6]},
                      {"name": "dense", "sign": -1, "open": 1, "parameters": 4000, "epochs": 12,
                       "errors": [0.004, None, None, 0.005]}]},
    "stream": {"frames": [[100, 0, 20], [0, 100, 40], [30, 0, 100]], "time": [[100, 0, 0], [25, 75, 0], [10, 20, 70]],
               "modes": [[[33, 33, 34]] * 3, [[20, 20, 60]] * 3, [[0, 0, 100], [100, 0, 0], [0, 100, 0]]],
               "answers": [[50, -20, 0], [10, 40, -90], [5, 6, 100]], "kept": [[1010, 1020, 1030], [1500, 1500, 1500]]},
}


def test_without_a_script_there_is_a_still_picture_with_words():
    assert '<script defer src="moving.js"></script>' in (ROOT / "tools" / "page.html").read_text(encoding="utf-8")
    for kind, data in DATA.items():
        picture = moving(kind, data, alt='Seen: "<it>"')
        html = picture._repr_html_()
        assert html.startswith('<div class="moving"') and html.count("<svg") == len(picture.panels) >= 2
        assert unescape(re.search(r'aria-label="([^"]*)"', html)[1]) == 'Seen: "<it>"' == repr(picture)
        assert json.loads(html.split('application/json">')[1].split("</script>")[0]) == picture.data
        assert picture.says in unescape(html)


@pytest.fixture(scope="module")
def browser():
    "Chromium without any network."
    with chromium("moving pictures are", [*FLAGS, "--window-size=900,900"]) as driver:
        yield driver


@pytest.fixture
def opened(browser, tmp_path):
    "The page with all pictures; afterwards the browser must have nothing to complain of."
    pictures = "".join(moving(kind, DATA[kind], alt=f"Picture {kind}")._repr_html_() for kind in DATA)
    style, script = ((NBS / name).read_text(encoding="utf-8") for name in ("styles.css", "moving.js"))
    file = tmp_path / "page.html"
    file.write_text(f'<!doctype html><html lang="en" data-theme="light"><meta charset="utf-8"><title>t</title>'
                    f'<style>{style}</style><body><main>{pictures}</main><script>{script}</script>', encoding="utf-8")
    browser.get_log("browser")
    browser.get(file.as_uri())
    yield browser
    assert [e["message"] for e in browser.get_log("browser") if e["level"] == "SEVERE"] == []


def part(browser, kind, selector):
    return browser.find_elements("css selector", f'.moving[data-moving="{kind}"] {selector}')


def says(browser, kind):
    return part(browser, kind, ".moving-says")[0].text


def drawn(browser, kind):
    "Marks and shades of each panel, as the browser has them."
    return [svg.get_attribute("innerHTML") for svg in part(browser, kind, "svg")]


def numbers(svg):
    "What can be compared: numbers of a drawing, without its pictures."
    bare = re.sub(r'href="[^"]*"|style="[^"]*"', "", svg)
    return [float(v) for v in re.findall(r"-?\d+(?:\.\d+)?", bare)]


def test_the_first_drawing_of_the_script_is_the_still_one_and_its_controls_have_names(opened):
    for kind, data in DATA.items():
        picture, found = moving(kind, data, alt=""), drawn(opened, kind)
        assert len(found) == len(picture.panels) and says(opened, kind) == picture.says
        assert part(opened, kind, ".moving-says")[0].get_attribute("aria-live") == "polite"
        assert all(panel.get_attribute("aria-label") for panel in part(opened, kind, "[tabindex='0']"))
        assert all(control.accessible_name for control in part(opened, kind, "input"))
        for own, still in zip(found, picture.panels, strict=True):
            still = re.sub(r"^<svg[^>]*>|</svg>$", "", still)
            assert numbers(own) == pytest.approx(numbers(still), abs=0.011), kind
            assert re.findall(r">([^<>]+)<", own) == re.findall(r">([^<>]+)<", still), kind


def press(element, *keys):
    from selenium.webdriver.common.keys import Keys
    element.send_keys(*(getattr(Keys, key) for key in keys))


def test_a_query_is_moved_by_keys_and_by_pointer(opened):
    grid = part(opened, "looks", "[tabindex='0']")[0]
    press(grid, "ARROW_UP", "ARROW_LEFT", "ARROW_LEFT")        # from the middle, and against the border
    assert says(opened, "looks").startswith("The query in row 1, column 1 looks at 9, 9, 5 of the 9")
    assert opened.execute_script("return document.activeElement === arguments[0]", grid)
    from selenium.webdriver import ActionChains
    ActionChains(opened).move_to_element(part(opened, "looks", ".moving-panel")[2]).click().perform()
    assert says(opened, "looks").startswith("The query in row 2, column 3")
    press(part(opened, "looks", "input")[0], "ARROW_LEFT")
    assert "looks at 4, 4, 3 of the 4 positions" in says(opened, "looks")
    assert "16 weights and takes 16" in says(opened, "looks") and "8 weights and take 16" in says(opened, "looks")


def test_an_entry_of_a_kronecker_product_is_the_product_that_is_told(opened):
    large = part(opened, "kronecker", "[tabindex='0']")[0]
    a, b = DATA["kronecker"]["a"], DATA["kronecker"]["b"]
    press(large, *["ARROW_UP"] * 4, *["ARROW_LEFT"] * 6)
    for r in range(4):                                          # down the diagonal
        x, y = a[r // 2][r // 3], b[r % 2][r % 3]
        told = says(opened, "kronecker")
        assert f"row {r} of A" in told and told.endswith(f"= {x} · {y} = {x * y}.")
        press(large, "ARROW_RIGHT", "ARROW_DOWN")


def test_mode_products_are_those_of_einsum(opened):
    x = torch.tensor(DATA["modeproduct"]["x"])
    for mode, sums in enumerate(("ijk,ai->ajk", "ijk,aj->iak", "ijk,ak->ija")):
        y = torch.einsum(sums, x, torch.tensor(DATA["modeproduct"]["matrices"][mode]))
        part(opened, "modeproduct", "input[type='radio']")[mode].send_keys(" ")
        cells = [[int(v) for v in re.findall(r'middle">(-?\d+)<', svg)] for svg in drawn(opened, "modeproduct")]
        assert cells[0] + cells[1] == x.flatten().tolist() and cells[5] + cells[6] == y.flatten().tolist()
        assert cells[3] == x.movedim(mode, 0).flatten().tolist()
    press(part(opened, "modeproduct", "input[type='range']")[0], "END")
    assert says(opened, "modeproduct").startswith("Mode 3, fiber 6 is (20, 21, 22, 23).")


def test_sliders_go_through_values_terms_and_updates(opened):
    first = "Last value 2. Outputs before the last step have moved by up to 0.30 (leaks), 0.00"
    for kind, key, words in [("leak", "END", first),
                             ("rank", "HOME", "1 term: 4 numbers in place of 4, relative error 0.50."),
                             ("shift", "HOME", "After 0 updates the error is 1.00 of the variance."),
                             ("stream", "HOME", "Frame 1 of 3: the answer mixes 1 frame of values. The state has"),
                             ("stream", "END", "Frame 3 of 3: the answer mixes 3 frames of values.")]:
        press(part(opened, kind, "input[type='range']")[0], key)
        assert says(opened, kind).startswith(words)


def test_the_dial_moves_floors_and_counts(opened):
    def told(*words):
        assert all(w in says(opened, "dial") for w in words), says(opened, "dial")

    alpha, size = part(opened, "dial", "input[type='range']")
    told("α = 0.25. NdLinear 1 × 1: 10 parameters, error at least 0.1 of a variance of 0.7.",
         "The smallest dense network with as many has 1 unit in a layer, 30 parameters and no floor.",
         "Measured: narrow (10 parameters, 40 epochs) 0.15.")
    press(alpha, "ARROW_RIGHT")
    told("error at least 0.2 of a variance of 0.6", "no run has this α.")
    press(alpha, "END")
    told("(10 parameters, 40 epochs) 0.6, dense (4,000 parameters, 12 epochs) 0.005.")
    before = drawn(opened, "dial")
    press(size, "END")
    told("NdLinear 2 × 2: 2,000 parameters, error at least 0 of a variance of 1.", "2 units in a layer, 4,000")
    after = drawn(opened, "dial")
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, False, False]
    assert [c.get_attribute("aria-valuetext") for c in (alpha, size)] == ["1", "2 × 2"]


def test_nothing_plays_where_motion_is_not_wanted(opened):
    assert [b.text for b in part(opened, "rank", "button")] == ["Play"]
    still = [{"name": "prefers-reduced-motion", "value": "reduce"}]
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": still})
    opened.refresh()
    assert part(opened, "rank", "button") == [] and part(opened, "rank", "input")
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
