#!/usr/bin/env python3
"""test_summary.py RUN_DIRECTORY [MESON_LOGS [DURATIONS]]: shows what failed, then `N passed, N failed`; status 1 if any failed.
MESON_LOGS is a pattern. Tests that ran more than once (dev/test --stress) are counted each time. Those that failed are listed
at the end, with why and how often."""
import collections
import glob
import json
import os
import re
import sys

run = sys.argv[1]
meson_logs = sys.argv[2] if len(sys.argv) > 2 else ""
durations = int(sys.argv[3]) if len(sys.argv) > 3 else 0
passed = failed = 0
runs = collections.Counter()  # of each program
often = collections.Counter()  # failures of each test
reasons = {}  # why it failed the last time


def show(heading, text):
    print(f"--- {heading}")
    print("\n".join(text.strip().split("\n")[-120:]))


for path in sorted(glob.glob(meson_logs)):
    with open(path, encoding="utf-8", errors="replace") as log:
        tests = [json.loads(line) for line in log]
    for test in tests:
        name = test["name"].split(" / ")[-1]
        output = (test.get("stdout") or "") + (test.get("stderr") or "")
        sums = re.findall(r"^\d+%: Checks: (\d+), Failures: (\d+), Errors: (\d+)$", output, re.M)
        bad = sum(int(failures) + int(errors) for _, failures, errors in sums)
        passed += sum(int(checks) for checks, _, _ in sums) - bad
        broken = test["result"] != "OK" and bad == 0  # crashed, or ran out of time, before it could count
        failed += bad + broken
        runs[name] += 1
        if bad or broken:
            show(f"{test['name']}: {test['result']} in {test['duration']:.1f} s", output)
        cases = re.findall(r"^([^/\s]*/)*(\S*:\d+):[FE]:[^:]*:([^:]*):\S+ (.*)", output, re.M)
        for _, line, case, why in cases or [("", "", "it did not end as it should", test["result"])] * broken:
            often[name, case] += 1
            reasons[name, case] = f"{line}: {why}"[:200]

for tap in sorted(glob.glob(os.path.join(run, "node-*.tap"))):
    with open(tap, encoding="utf-8", errors="replace") as log:
        text = log.read()
    counts = {name: int(count) for name, count in re.findall(r"^# (tests|pass|fail|cancelled) (\d+)$", text, re.M)}
    bad = counts.get("fail", 0) + counts.get("cancelled", 0) if counts else 1
    passed += counts.get("pass", 0)
    failed += bad
    runs["JavaScript"] += 1
    for name, why in re.findall(r"^\s*ok \d+ - (.*) # SKIP ?(.*)$", text, re.M):
        print(f"skipped: {name}: {why}")
    for name in re.findall(r"^\s*not ok \d+ - (.*)$", text, re.M):
        often["JavaScript", name] += 1
    if bad:
        failures = re.findall(r"^\s*not ok .*\n(?:\s+---\n(?:.*\n)*?\s+\.\.\.\n)?", text, re.M)
        show("tests in JavaScript", "".join(failures) or text)

fuzz = os.path.join(run, "fuzz.txt")
if os.path.exists(fuzz):
    with open(fuzz, encoding="utf-8", errors="replace") as log:
        sums = re.findall(r"^(\d+) passed, (\d+) failed$", log.read(), re.M)
    good, bad = map(int, sums[-1]) if sums else (0, 1)
    passed += good
    failed += bad

# What our programs logged in the tests that failed: the others removed theirs.
logs = os.path.join(run, "logs")
for name in sorted(os.listdir(logs))[:10] if failed else []:
    with open(os.path.join(logs, name), encoding="utf-8", errors="replace") as log:
        lines = log.read().strip().split("\n")
    report = next((i for i, line in enumerate(lines) if "ERROR: AddressSanitizer" in line or ": runtime error: " in line), None)
    shown = lines[-30:] if report is None else lines[report : report + 30]
    print(f"--- {name}, {'last ' if report is None else 'from the report of the sanitizer on, '}{len(shown)} lines")
    print("\n".join(shown))

times = []
for path in glob.glob(os.path.join(run, "times", "*.xml")):
    with open(path, encoding="utf-8", errors="replace") as log:
        found = re.findall(r"<id>(.*?)</id>\s*<iteration>\d*</iteration>\s*<duration>([\d.]+)</duration>", log.read(), re.S)
    times += [(float(seconds), f"{os.path.basename(path).rsplit('-', 1)[0]} {case}") for case, seconds in found]
for seconds, test in sorted(times, reverse=True)[:durations]:
    print(f"{seconds:8.2f} s  {test}")

for (name, case), times in often.most_common():
    count = f" {times} of {runs[name]} times" if runs[name] > 1 else ""
    print(f"failed{count}: {name} {case} {reasons.get((name, case), '')}".rstrip())
if passed + failed == 0:
    print("no test was selected")
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed or passed == 0 else 0)
