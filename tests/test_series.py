"""Series: layouts, damaged files, time that does not go forward, new files for a trained model."""
import gzip
import re

import pytest
import torch
from official import official

from hot_nbdev.data import forecast_data, window_counts
from hot_nbdev.data.series import SERIES, check_like, load_series, report_lines


def write(path, rows, header="date,a,b", end="\n", **options):
    path.write_text(end.join([header, *rows] if header else rows), **{"encoding": "utf-8", **options})
    return path


def test_ways_of_writing_a_series(tmp_path):
    rows = ["2020-01-01 00:00:00,1,2", "2020-01-01 01:00:00,3,4"]
    want = torch.tensor([[1., 2.], [3., 4.]]).double()
    for i, options in enumerate([{}, {"end": "\r\n"}, {"encoding": "utf-8-sig"}, {"header": "Date,a,b"}]):
        got = load_series(write(tmp_path / f"{i}.csv", rows, **options))
        assert torch.equal(got.values, want) and got.names == ["a", "b"]
    old = load_series(write(tmp_path / "old.csv", ["1990/1/1 0:00,1,2", "1990/1/2 0:00,3,4"]))
    assert str(old.dates[1]) == "1990-01-02T00:00:00" and old.report["gaps"] == []
    latin = tmp_path / "latin.csv"
    latin.write_bytes("date,W/m²\n2020-01-01 00:00:00,1\n".encode("latin-1"))
    assert load_series(latin).report["broken names"] == ["W/m\ufffd"]
    one = load_series(write(tmp_path / "one.csv", rows[:1]))
    assert one.values.shape == (1, 2) and one.report["gaps"] == []


@pytest.mark.parametrize("rows, header, text", [
    ([], "date,a,b", "holds no rows"),
    (["2020-01-01 00:00:00"], "date", "header that begins"),
    (["2020-01-01 00:00:00,1,2", ""], "a,b,c", "line 1.*'date,'"),
    (["2020-01-01 00:00:00,1,2", "", "2020-01-01 01:00:00,1,2"], "date,a,b", "line 3.*3 entries, but has 1"),
    (["2020-01-01 00:00:00,1,2", "2020-01-01 00:00:00,1,2,3"], "date,a,b", "line 3.*3 entries, but has 4"),
    (["2020-01-01 00:00:00,1,"], "date,a,b", "line 2.*'b'.*''"),
    (["2020-01-01 00:00:00,1,2", "2020-13-01 00:00:00,1,2"], "date,a,b", "line 3.*date"),
    (["2020-01-01 00:00:00,1,inf"], "date,a,b", "line 2.*'b'.*inf.*mend=True"),
])
def test_damaged_series_name_the_line(tmp_path, rows, header, text):
    path = write(tmp_path / "x.csv", rows, header)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=text):
        load_series(path)
    assert path.read_bytes() == before


def test_damaged_series_without_dates(tmp_path):
    with pytest.raises(ValueError, match="line 2.*2 entries, but has 1"):
        load_series(write(tmp_path / "x.txt", ["1,2", "3"], None))
    with pytest.raises(ValueError, match="line 2.*column '1'.*'y'"):
        load_series(write(tmp_path / "x.txt", ["1,2", "3,y"], None))
    (tmp_path / "none.txt").write_bytes(b"")
    with pytest.raises(ValueError, match="holds no rows"):
        load_series(tmp_path / "none.txt")
    (tmp_path / "noise.csv").write_bytes(bytes(range(256)) * 10)
    with pytest.raises(ValueError, match="line 1"):
        load_series(tmp_path / "noise.csv")


def test_mending(tmp_path):
    path = write(tmp_path / "x.txt", ["-9999,1", "2,nan", "-9999,-9999", "3,4"], None)
    mended = load_series(path, mend=True)
    assert mended.values.tolist() == [[2, 1], [2, 1], [2, 1], [3, 4]]
    assert mended.report["missing"] == {"1": 1} and mended.report["sentinels"] == {"0": 2, "1": 1}
    with pytest.raises(ValueError, match="no value at all"):
        load_series(write(tmp_path / "y.txt", ["-9999,1", "nan,2"], None), mend=True)


def test_wrong_official_series(tmp_path):
    rows = ["2020-01-01 00:00:00,1,2"]
    write(tmp_path / "weather.csv", rows), write(tmp_path / "traffic.csv", rows)
    with pytest.raises(ValueError, match="should have the checksum 34ee981d"):
        load_series("weather", tmp_path)
    with pytest.raises(ValueError, match="no checksum.*unchecked=True"):
        load_series("traffic", tmp_path)
    with pytest.raises(ValueError, match=r"\(17544, 862\).*\(1, 2\)"):
        load_series("traffic", tmp_path, unchecked=True)
    assert load_series("weather", tmp_path, verify=False).values.shape == (1, 2)
    with pytest.raises(FileNotFoundError, match="known are ETTh1"):
        load_series("wether", tmp_path)


HOURS = [f"2020-01-01 0{h}:00:00,{h},{2 * h}" for h in range(6)]


@pytest.mark.parametrize("rows, text", [
    (HOURS[::-1], r"line 3 .*T04:00:00, comes after .*T05:00:00.*whole file is in reverse order.*sort=True"),
    ([HOURS[i] for i in (0, 3, 1, 2, 5, 4)], r"line 4 .*backwards.*2 times.*sort=True"),
    ([*HOURS[:3], HOURS[2]], r"line 5 .*T02:00:00 of line 4 again \(1 such lines\).*mend=True"),
    ([*HOURS[:3], "2020-01-01 02:00:00,7,7"], r"line 5 .*values differ"),
    ([HOURS[0], ",1,2"], "line 3 .*begin with a date.*''"),
    ([HOURS[0], "NaT,1,2"], "line 3 .*begin with a date.*'NaT'"),
    ([",1,2", HOURS[0]], "line 2 .*begin with a date"),
    ([HOURS[0], "1990/1/1 0:00,1,2"], "line 3 .*begin with a date"),
    ([HOURS[0], "2020-01-01 01:00:00,1,1e31"], "line 3 .*'b', is 1e.31.*mend=True.*masked=True"),
])
def test_time_that_does_not_go_forward(tmp_path, rows, text):
    with pytest.raises(ValueError, match=text):
        load_series(write(tmp_path / "x.csv", rows))


def test_sorting_and_dropping_on_request(tmp_path):
    want = load_series(write(tmp_path / "x.csv", HOURS))
    shuffled = write(tmp_path / "y.csv", [HOURS[i] for i in (5, 0, 3, 3, 1, 2, 4)])
    got = load_series(shuffled, sort=True, mend=True)
    assert torch.equal(got.values, want.values) and (got.dates == want.dates).all()
    assert got.report["dates twice"] == ["2020-01-01T03:00:00"] and got.mask.all()
    with pytest.raises(ValueError, match="line 5 .*of line 4 again"):
        load_series(shuffled, sort=True)                            # lines are those of the file
    with pytest.raises(ValueError, match="backwards"):
        load_series(shuffled, mend=True)
    differ = write(tmp_path / "z.csv", [*HOURS[:3], "2020-01-01 02:00:00,7,7"])
    with pytest.raises(ValueError, match="values differ"):
        load_series(differ, mend=True)


def test_an_official_file_keeps_the_line_that_it_holds_twice(tmp_path):
    path = write(tmp_path / "weather.csv", [*HOURS[:3], HOURS[2]])
    assert len(load_series("weather", tmp_path, verify=False).values) == 4
    with pytest.raises(ValueError, match="again"):
        load_series(path)


def test_columns_bytes_and_packed_files(tmp_path):
    with pytest.raises(ValueError, match="line 1 .*'a' twice"):
        load_series(write(tmp_path / "x.csv", HOURS, "date,a,a"))
    (tmp_path / "binary.csv").write_bytes(b"date,a\n2020-01-01,1\n\0\1\2")
    with pytest.raises(ValueError, match="line 3 .*no text"):
        load_series(tmp_path / "binary.csv")
    packed = gzip.compress(write(tmp_path / "x.csv", HOURS).read_bytes())
    (tmp_path / "y.csv.gz").write_bytes(packed)
    assert torch.equal(load_series(tmp_path / "y.csv.gz").values, load_series(tmp_path / "x.csv").values)
    (tmp_path / "y.csv.gz").write_bytes(packed[:-10])
    with pytest.raises(ValueError, match="y.csv.gz cannot be unpacked"):
        load_series(tmp_path / "y.csv.gz")
    (tmp_path / "z.txt.gz").write_bytes(gzip.compress(b"1,2\n3,4\n"))
    assert load_series(tmp_path / "z.txt.gz").values.tolist() == [[1, 2], [3, 4]]


def test_masked_values_are_marked_and_not_filled(tmp_path):
    path = write(tmp_path / "x.txt", ["1,2", "-9999,nan", "3,inf", "4,5"], None)
    got = load_series(path, masked=True)
    assert got.mask.tolist() == [[True, True], [False, False], [True, False], [True, True]]
    assert torch.equal(got.values.isnan(), ~got.mask) and got.report["masked"]
    assert any("hidden by the mask" in t for t in report_lines(got.report))
    with pytest.raises(ValueError, match="no value at all"):
        load_series(write(tmp_path / "y.txt", ["1,nan", "2,-9999"], None), masked=True)


def test_absurd_magnitudes_are_told(tmp_path):
    rows = [f"{i % 7},{i % 5}" for i in range(100)]
    assert report_lines(load_series(write(tmp_path / "x.txt", rows, None)).report) == []
    rows[41] = "-3e9,1"
    report = load_series(write(tmp_path / "x.txt", rows, None)).report
    assert report["extreme"] == {"0": (42, -3e9)}
    assert any("line 42, column '0'" in t for t in report_lines(report))
    rows = [f"{i % 7},{5 * (i % 97 == 0)}" for i in range(1000)]        # rare rain is not absurd
    assert load_series(write(tmp_path / "x.txt", rows, None)).report["extreme"] == {}


def test_a_new_series_is_compared_with_the_training(tmp_path):
    about = dict(names=["a", "b"], shift=[0.0, 0.0], scale=[1.0, 2.0], step=3600)
    series = load_series(write(tmp_path / "x.csv", HOURS))
    x, told = check_like(series, about, 4)
    assert x.tolist() == [[2, 2], [3, 3], [4, 4], [5, 5]] and x.dtype == torch.float32 and told == []
    for names, text in [
        (["b", "a"], "another order.*'b', 'a'"),
        (["a"], "in addition 'b'"),
        (["a", "c"], "lacks 'c'.*'b'"),
    ]:
        with pytest.raises(ValueError, match=text):
            check_like(series, {**about, "names": names}, 4)
    with pytest.raises(ValueError, match="6 rows.*sees 7"):
        check_like(series, about, 7)
    assert "600 s in training" in check_like(series, {**about, "step": 600}, 4)[1][0]
    far = check_like(series, {**about, "scale": [0.1, 2.0]}, 4)[1]
    assert far == ["column 'a': 3 of the last 4 values lie more than 20 deviations from what training saw"]
    gap = load_series(write(tmp_path / "y.csv", [*HOURS, "2020-01-01 09:00:00,1,2"]))
    assert "gap in time" in check_like(gap, about, 4)[1][0]


@pytest.mark.parametrize("hole", ["nan", "-9999"])
def test_trailing_holes_are_not_filled_silently(tmp_path, hole):
    about = dict(names=["a", "b"], shift=[0.0, 0.0], scale=[1.0, 1.0])
    path = write(
        tmp_path / "x.csv", [*HOURS[:4], f"2020-01-01 04:00:00,{hole},8", f"2020-01-01 05:00:00,{hole},9"]
    )
    with pytest.raises(ValueError, match="mend=True"):
        check_like(load_series(path), about, 3)
    x, told = check_like(load_series(path, mend=True), about, 3)
    assert x[:, 0].tolist() == [3, 3, 3] and told == [
        "column 'a': 2 of the last 3 values were missing and are filled"
    ]
    early = write(tmp_path / "y.csv", [f"2020-01-01 00:00:00,{hole},8", *HOURS[1:]])
    assert check_like(load_series(early, mend=True), about, 3)[1] == []


@pytest.mark.parametrize("name", SERIES)
def test_official_series(name):
    official(name, SERIES[name].file)
    splits = forecast_data(name, 96, 96, download=False, unchecked=True)
    n = SERIES[name].shape[0]
    split = name[:4] if name.startswith("ETT") else "7:1:2"
    assert splits.about["counts"] == window_counts(n, 96, 96, split)
    x, y = splits.train[torch.arange(0, len(splits.train), 997)]
    assert x.isfinite().all() and y.shape[1:] == (96, SERIES[name].shape[1])
    rows = splits.train.values.double()
    assert rows.mean(0).abs().max() < 1e-3 and (rows.std(0) - 1).abs().max() < 1e-2
    if name == "exchange_rate":
        assert splits.about["counts"] == (5120, 665, 1422)              # the papers' table
    if name == "weather":
        report = splits.about["report"]
        assert sum(report["sentinels"].values()) == 81 and report["dates twice"] == ["2020-05-12T06:00:00"]
        mended = load_series("weather", mend=True, download=False)
        assert mended.values.min() > -100 and len(mended.values) == n - 1
        assert not re.search("\ufffd", "".join(mended.names))


def test_a_hole_gets_the_last_value_before_it_and_at_the_start_the_first(tmp_path):
    path = write(tmp_path / "x.txt", ["nan,1", "1,1", "2,1", "nan,1", "-9999,1", "5,1"], None)
    assert load_series(path, mend=True).values[:, 0].tolist() == [1, 1, 2, 2, 2, 5]
