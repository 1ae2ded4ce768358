"""Series: how tables are written, calendars, damaged files, time that goes back, new files for a trained model."""
import gzip
import os
import re

import pytest
import torch
from scripts import load
from smallfiles import write_rows

from hot_nbdev.book import results_file
from hot_nbdev.data.series import check_like, load_series, report_lines
from hot_nbdev.data.times import next_times
from hot_nbdev.train.results import read_rows

PLAIN = "date,a,b\n2024-01-31 10:00:00,1.5,2\n2024-01-31 11:00:00,3,-4\n"


def stamped(first, second, head="date"):
    return f"{head},a,b\n{first},1.5,2\n{second},3,-4\n"


DIALECTS = {        # how two rows of two columns are written, and the time that comes next
    "plain": (PLAIN, "2024-01-31 12:00:00"),
    "no seconds": (stamped("2024-01-31 10:00", "2024-01-31 11:00"), "2024-01-31 12:00"),
    "a T": (stamped("2024-01-31T10:00:00", "2024-01-31T11:00:00"), "2024-01-31T12:00:00"),
    "Zulu": (stamped("2024-01-31T10:00:00Z", "2024-01-31T11:00:00Z"), "2024-01-31T12:00:00Z"),
    "UTC": (stamped("2024-01-31 22:00 UTC", "2024-01-31 23:00 UTC"), "2024-02-01 00:00 UTC"),
    "India": (stamped("2024-01-31 22:00+05:30", "2024-01-31 23:00+05:30"), "2024-02-01 00:00+05:30"),
    "no colon": (stamped("2024-01-31 22:00:00-0800", "2024-01-31 23:00:00-0800"), "2024-02-01 00:00:00-0800"),
    "fractions": (stamped("2024-01-31 10:00:00.000", "2024-01-31 10:00:01.500"), "2024-01-31 10:00:03.000"),
    "zero fractions left out": (stamped("2024-01-31 10:00:00", "2024-01-31 10:00:00.25"), "2024-01-31 10:00:00.50"),
    "midnight left out": (stamped("2024-01-31", "2024-01-31 12:00:00"), "2024-02-01 00:00:00"),
    "slashes": (stamped("2024/01/31 10:00", "2024/01/31 11:00"), "2024/01/31 12:00"),
    "no zeros": (stamped("1990/1/9 8:00", "1990/1/9 9:00"), "1990/1/9 10:00"),
    "points": (stamped("31.01.2024 10:00", "31.01.2024 11:00"), "31.01.2024 12:00"),
    "day first": (stamped("31/01/2024", "01/02/2024"), "02/02/2024"),
    "month first": (stamped("01/31/2024", "02/01/2024"), "02/02/2024"),
    "dashed day first": (stamped("31-01-2024 10:00", "31-01-2024 11:00"), "31-01-2024 12:00"),
    "twelve hours": (stamped("01/31/2024 10:00 AM", "01/31/2024 11:00 AM"), "01/31/2024 12:00 PM"),
    "named months": (stamped("31-Jan-2024", "01-Feb-2024"), "02-Feb-2024"),
    "digits": (stamped("20240131", "20240201"), "20240202"),
    "digits with a clock": (stamped("202401312200", "202401312300", "Time"), "202402010000"),
    "seconds since 1970": (stamped("1706695200", "1706698800", "timestamp"), "1706702400"),
    "milliseconds": (stamped("1706695200000", "1706698800000", "timestamp"), "1706702400000"),
    "semicolons": (PLAIN.replace(",", ";"), "2024-01-31 12:00:00"),
    "tabs": (PLAIN.replace(",", "\t"), "2024-01-31 12:00:00"),
    "tabs and decimal commas": (PLAIN.replace(",", "\t").replace("1.5", "1,5"), "2024-01-31 12:00:00"),
    "quotes": (re.sub("([^,\n]+)", r'"\1"', PLAIN), "2024-01-31 12:00:00"),
    "UTF-16": (PLAIN.encode("utf-16"), "2024-01-31 12:00:00"),
    "CR": (PLAIN.replace("\n", "\r"), "2024-01-31 12:00:00"),
    "blank lines at the end": (PLAIN + "\n\n \n", "2024-01-31 12:00:00"),
    "no last line end": (PLAIN[:-1], "2024-01-31 12:00:00"),
    "a separator at the end": (PLAIN.replace("\n", ",\n"), "2024-01-31 12:00:00"),
    "hard spaces": (PLAIN.replace("1.5", "\xa01.5"), "2024-01-31 12:00:00"),
    "spaces": (PLAIN.replace(",", ", "), "2024-01-31 12:00:00"),
    "signs": (PLAIN.replace("1.5", "+1.5e0"), "2024-01-31 12:00:00"),
    "time last": ("a,b,when\n1.5,2,2024-01-31\n3,-4,2024-02-01\n", "2024-02-02"),
    "time between": ("a,Zeit,b\n1.5,2024-01-31,2\n3,2024-02-01,-4\n", "2024-02-02"),
    "index of a program": (",date,a,b\n0,2024-01-31,1.5,2\n1,2024-02-01,3,-4\n", "2024-02-02"),
    "times as index": (PLAIN.replace("date", ""), "2024-01-31 12:00:00"),
    "packed": (gzip.compress(PLAIN.encode()), "2024-01-31 12:00:00"),
}


@pytest.mark.parametrize("content, following", DIALECTS.values(), ids=DIALECTS)
def test_ways_of_writing_a_table(tmp_path, content, following):
    (tmp_path / "x.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    got = load_series(tmp_path / "x.csv")
    assert got.values.tolist() == [[1.5, 2], [3, -4]] and got.names == ["a", "b"] and got.mask.all()
    assert next_times(got.times, got.step, 1) == [following] and got.report["gaps"] == []


CALENDARS = {       # rows, and what comes next
    "quarters of an hour": ("2024-02-29T23:30 2024-02-29T23:45", "2024-03-01T00:00 2024-03-01T00:15"),
    "business days": ("2024-02-28 2024-02-29 2024-03-01 2024-03-04",
                      "2024-03-05 2024-03-06 2024-03-07 2024-03-08 2024-03-11"),
    "weeks": ("2024-02-18 2024-02-25", "2024-03-03 2024-03-10"),
    "hours by digits": ("2024022822 2024022823", "2024022900 2024022901"),
    "month begins": ("2019-10-01 2019-11-01 2019-12-01", "2020-01-01 2020-02-01 2020-03-01 2020-04-01"),
    "the 30th": ("2023-11-30 2023-12-30 2024-01-30", "2024-02-29 2024-03-30"),
    "business month ends": ("2023-11-30 2023-12-29 2024-01-31 2024-02-29", "2024-03-29 2024-04-30"),
    "months": ("2023-11 2023-12", "2024-01 2024-02"),
    "quarter ends": ("2023-06-30 2023-09-30 2023-12-31", "2024-03-31 2024-06-30"),
    "leap years": ("2024-02-29 2025-02-28 2026-02-28", "2027-02-28 2028-02-29"),
    "summer time ends": ("2024-10-27T02:00+02:00 2024-10-27T02:00+01:00 2024-10-27T03:00+01:00",
                         "2024-10-27T04:00+01:00"),
    "days across summer time": ("2024-03-30T00:00+01:00 2024-03-31T00:00+01:00 2024-04-01T00:00+02:00",
                                "2024-04-02T00:00+02:00"),
}


@pytest.mark.parametrize("rows, following", CALENDARS.values(), ids=CALENDARS)
def test_calendars_are_carried_on(tmp_path, rows, following):
    got = load_series(write_rows(tmp_path / "x.csv", [f"{row},1" for row in rows.split()], "date,a"))
    assert next_times(got.times, got.step, len(following.split())) == following.split() and got.report["gaps"] == []


def test_gaps_are_judged_by_the_calendar(tmp_path):
    months = [f"2019-{m:02d}-01,1" for m in (1, 2, 3, 5, 6, 7)]
    report = load_series(write_rows(tmp_path / "x.csv", months, "date,a")).report
    assert report["gaps"] == [("2019-03-01T00:00:00", 61 * 86400)] and report["step"] == "1 month"
    assert "1 steps in time differ from the usual one of 1 month" in report_lines(report)[0]
    days = [f"2024-03-{d:02d},1" for d in (4, 5, 6, 7, 8, 11, 13, 14, 15)]              # no Tuesday the 12th
    report = load_series(write_rows(tmp_path / "y.csv", days, "date,a")).report
    assert report["gaps"] == [("2024-03-11T00:00:00", 2 * 86400)]


def test_the_time_column_may_be_named_or_absent(tmp_path):
    path = write_rows(tmp_path / "x.csv", ["2019,7,1", "2020,8,2"], "t,a,b")
    named, absent = load_series(path, time="t"), load_series(path, step="15min")
    assert named.names == ["a", "b"] and next_times(named.times, named.step, 1) == ["2021"]
    assert absent.names == ["t", "a", "b"] and absent.times is None and absent.report["step"] == "900 s"
    with pytest.raises(ValueError, match="x.csv, line 2, column 'a', should be a time .* but is '7'"):
        load_series(path, time="a")


def test_cells_without_a_value(tmp_path):
    cells = ["", "NA", "N/A", "n/a", "null", "None", "nan", "-nan", "NaN", "NULL", "#N/A", "<NA>", " ", " NA "]
    rows = [f"2020-01-{i:02d},{cell},{i}" for i, cell in enumerate(cells, 2)]
    path = write_rows(tmp_path / "x.csv", ["2020-01-01,1,2", *rows, "2020-01-16,5,", "2020-01-17,7,8"])
    with pytest.raises(ValueError, match="15 cells of .*x.csv.*line 3 .*'a', which is ''.*mend.*masked"):
        load_series(path)
    assert load_series(path, mend=True).values.T.tolist() == [[1] * 15 + [5, 7], [2, *range(2, 16), 15, 8]]
    hidden = load_series(path, masked=True)
    assert hidden.mask.T.tolist() == [[True] + [False] * 14 + [True] * 2, [True] * 15 + [False, True]]
    assert torch.equal(hidden.values.isnan(), ~hidden.mask) and "hidden by the mask" in report_lines(hidden.report)[0]


def test_names_that_cannot_be_read_are_reported(tmp_path):
    (tmp_path / "latin.csv").write_bytes("date,W/m²\n2020-01-01 00:00:00,1\n".encode("latin-1"))
    got = load_series(tmp_path / "latin.csv")
    assert got.report["broken names"] == ["W/m\ufffd"] and got.values.shape == (1, 1) and got.report["gaps"] == []


HOURS = [f"2020-01-01 0{h}:00:00,{h},{2 * h}" for h in range(6)]


@pytest.mark.parametrize("rows, header, text", [
    ([], "date,a,b", "x.csv holds no rows"),
    (["2020-01-01 00:00:00"], "date", "no column of numbers"),
    (["2020-01-01 00:00:00,1,2", "2020-01-01 00:00:00,1,2,3"], "date,a,b", "line 3 .*3 entries, .*but has 4"),
    (['2020-01-01,"1,5",2'], "date,a,b", "line 2 .*'a'.*'1,5'"),
    (['2020-01-01,1,"2'], "date,a,b", "line 2 .*not closed"),
    (["-005,1,2"], "year,a,b", "no column of .* can be read as times"),
    (["2020-01-01;1.5;2", "2020-01-02;1,5;2"], "date;a;b", "line 2 .*'a'.*'1.5'"),
    (["2020-01-01 00:00:00,1,2", "2020-13-01 00:00:00,1,2"], "date,a,b", "line 3.*'date', should be a time .*-13-01"),
    (["2020-01-01 00:00:00,1,inf"], "date,a,b", "line 2 .*'b', which is 'inf'.*mend=True"),
    (["2020-01-01 00:00+01:00,1,2", "2020-01-01 01:00+99:99,1,2"], "date,a,b", r"line 3.*time.*99:99'"),
    (["2020-01-01," + 200_000 * "1", "2020-01-02,2"], "date,a", "x.csv is no table of numbers.*limit"),
    (["1,2", "3"], None, "line 2 .*2 entries, as line 1 has, but has 1"),
    (["1,2", "3,y"], None, "line 2 .*column '1'.*'y'"),
    (["2020-01-01,1,2"], "date,a,a", "line 1 .*'a' twice"),
    (["2020-01-01,1,2", "\0\1\2"], "date,a,b", "line 3 .*no text"),
    (HOURS[::-1], "date,a,b", r"line 3 .*T04:00:00, comes after .*T05:00:00.*file is in reverse order.*sort=True"),
    ([HOURS[i] for i in (0, 3, 1, 2, 5, 4)], "date,a,b", r"line 4 .*backwards.*2 times.*sort=True"),
    ([*HOURS[:3], HOURS[2]], "date,a,b", r"line 5 .*T02:00:00 of line 4 again \(1 such lines\).*mend=True"),
    ([*HOURS[:3], "2020-01-01 02:00:00,7,7"], "date,a,b", r"line 5 .*values differ"),
    ([",1,2", HOURS[0]], "date,a,b", "line 2, .*should be a time"),
    ([HOURS[0], "2020-01-01 01:00:00+01:00,1,2"], "date,a,b", "line 2, .*time such as '2020-01-01 01:00:00.01:00'"),
])
def test_damaged_series_name_file_line_and_cell(tmp_path, rows, header, text):
    path = write_rows(tmp_path / "x.csv", rows, header)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=text) as error:
        load_series(path)
    assert path.read_bytes() == before and str(path) in str(error.value)


def test_a_hole_takes_the_value_before_it_and_at_the_beginning_the_first(tmp_path):
    path = write_rows(tmp_path / "x.txt", ["-9999,1", "2,nan", "-9999,-9999", "3,4"], None)
    mended = load_series(path, mend=True)
    assert mended.values.tolist() == [[2, 1], [2, 1], [2, 1], [3, 4]]
    assert mended.report["missing"] == {"1": 1} and mended.report["sentinels"] == {"0": 2, "1": 1}
    for way in ("mend", "masked"):
        with pytest.raises(ValueError, match="no value at all"):
            load_series(write_rows(tmp_path / "y.txt", ["-9999,1", "nan,2"], None), **{way: True})


def test_wrong_official_series(tmp_path):
    rows = ["2020-01-01 00:00:00,1,2"]
    write_rows(tmp_path / "weather.csv", rows), write_rows(tmp_path / "traffic.csv", rows)
    with pytest.raises(ValueError, match="should have the checksum 34ee981d"):
        load_series("weather", tmp_path)
    with pytest.raises(ValueError, match="no checksum.*unchecked=True"):
        load_series("traffic", tmp_path)
    with pytest.raises(ValueError, match=r"\(17544, 862\).*\(1, 2\)"):
        load_series("traffic", tmp_path, unchecked=True)
    assert load_series("weather", tmp_path, verify=False).values.shape == (1, 2)
    with pytest.raises(FileNotFoundError, match="known are ETTh1"):
        load_series("wether", tmp_path)


def test_sorting_and_dropping_on_request(tmp_path):
    want = load_series(write_rows(tmp_path / "x.csv", HOURS))
    shuffled = write_rows(tmp_path / "y.csv", [HOURS[i] for i in (5, 0, 3, 3, 1, 2, 4)])
    got = load_series(shuffled, sort=True, mend=True)
    assert torch.equal(got.values, want.values) and (got.dates == want.dates).all()
    assert got.report["dates twice"] == ["2020-01-01T03:00:00"] and got.mask.all()
    with pytest.raises(ValueError, match="line 5 .*of line 4 again"):
        load_series(shuffled, sort=True)                            # lines are those of the file
    with pytest.raises(ValueError, match="values differ"):
        load_series(write_rows(tmp_path / "z.csv", [*HOURS[:3], "2020-01-01 02:00:00,7,7"]), mend=True)


def test_an_official_file_keeps_the_line_that_it_holds_twice(tmp_path):
    path = write_rows(tmp_path / "weather.csv", [*HOURS[:3], HOURS[2]])
    assert len(load_series("weather", tmp_path, verify=False).values) == 4
    with pytest.raises(ValueError, match="again"):
        load_series(path)


def test_absurd_magnitudes_are_told(tmp_path):
    rows = [f"{i % 7},{5 * (i % 97 == 0)}" for i in range(1000)]        # rare rain is not absurd
    rows[41] = "-3e9,0"
    report = load_series(write_rows(tmp_path / "x.txt", rows, None)).report
    assert report["extreme"] == {"0": (42, -3e9)} and "line 42, column '0'" in report_lines(report)[0]


def test_a_new_series_is_compared_with_the_training(tmp_path):
    about = dict(names=["a", "b"], shift=[0.0, 0.0], scale=[1.0, 2.0], every="3600 s")
    series = load_series(write_rows(tmp_path / "x.csv", HOURS))
    x, told = check_like(series, about, 4)
    assert x.tolist() == [[2, 2], [3, 3], [4, 4], [5, 5]] and x.dtype == torch.float32 and told == []
    for names, text in [(["a"], "in addition 'b'"), (["a", "c"], "lacks 'c'.*'b'")]:
        with pytest.raises(ValueError, match=f"x.csv has other columns.*{text}"):
            check_like(series, {**about, "names": names}, 4)
    assert "600 s in training" in check_like(series, {**about, "every": "600 s"}, 4)[1][0]
    far = check_like(series, {**about, "scale": [0.1, 2.0]}, 4)[1]
    assert far == ["column 'a': 3 of the last 4 values lie more than 20 deviations from what training saw"]
    gap = load_series(write_rows(tmp_path / "y.csv", [*HOURS, "2020-01-01 09:00:00,1,2"]))
    assert "gap in time" in check_like(gap, about, 4)[1][0]


def test_trailing_holes_are_not_filled_silently(tmp_path):
    about = dict(names=["a", "b"], shift=[0.0, 0.0], scale=[1.0, 1.0])
    path = write_rows(tmp_path / "x.csv", [*HOURS[:4], "2020-01-01 04:00:00,nan,8", "2020-01-01 05:00:00,-9999,9"])
    x, told = check_like(load_series(path, mend=True), about, 3)
    assert x[:, 0].tolist() == [3, 3, 3] and told == ["column 'a': 2 of the last 3 values were missing and are filled"]
    early = write_rows(tmp_path / "y.csv", ["2020-01-01 00:00:00,nan,8", *HOURS[1:]])
    assert check_like(load_series(early, mend=True), about, 3)[1] == []


@pytest.mark.parametrize("kind", ["series", "volumes", "scenes"])
def test_official_files_hold_what_chapter_16_shows_of_them(kind, tmp_path, monkeypatch):
    if not os.environ.get("HOT_DATA"):
        pytest.skip("HOT_DATA is not set: it names the folder with the official files")
    script = load("data")
    monkeypatch.setattr(script, "HERE", tmp_path)
    getattr(script, kind)()
    assert (made := [*tmp_path.glob("*.csv")])
    for path in made:
        shown = read_rows(results_file(path.name))
        assert [row for row in read_rows(path) if row not in shown] == [], path.name
