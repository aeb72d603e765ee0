#!/usr/bin/env python3
"""test_summary.py [--failed] RUN_DIRECTORY MESON_LOG.json...: shows what failed, then `N passed, N failed`; status 1 if any
failed. A program that is in two logs counts as in the later one. --failed: only the names of the programs that failed."""
import json
import os
import re
import sys

arguments = sys.argv[1:]
names_only = arguments[0] == "--failed"
run, *meson_logs = arguments[1:] if names_only else arguments
passed = failed = 0

tests = {}
unsteady = []
for meson_log in meson_logs:
    if not os.path.exists(meson_log):
        continue
    with open(meson_log, encoding="utf-8", errors="replace") as log:
        for line in log:
            test = json.loads(line)
            if test["name"] in tests and test["result"] == "OK":
                unsteady.append(tests[test["name"]])
            tests[test["name"]] = test

if names_only:
    # meson says "rowbell:unit+relay / relay-unit"; it takes the last word.
    print("\n".join(name.split(" / ")[-1] for name, test in tests.items() if test["result"] != "OK"))
    sys.exit(0)

for name, test in tests.items():
    output = (test.get("stdout") or "") + (test.get("stderr") or "")
    sums = re.findall(r"^\d+%: Checks: (\d+), Failures: (\d+), Errors: (\d+)$", output, re.M)
    bad = sum(int(failures) + int(errors) for _, failures, errors in sums)
    passed += sum(int(checks) for checks, _, _ in sums) - bad
    broken = test["result"] != "OK" and bad == 0  # crashed, or ran out of time, before it could count
    failed += bad + broken
    if bad or broken:
        print(f"--- {name}: {test['result']} in {test['duration']:.1f} s")
        lines = output.strip().split("\n")
        print("\n".join(lines[-120:]))

tap = os.path.join(run, "node.tap")
if os.path.exists(tap):
    with open(tap, encoding="utf-8", errors="replace") as log:
        text = log.read()
    counts = {name: int(count) for name, count in re.findall(r"^# (tests|pass|fail|cancelled) (\d+)$", text, re.M)}
    bad = counts.get("fail", 0) + counts.get("cancelled", 0) if counts else 1
    passed += counts.get("pass", 0)
    failed += bad
    for name, why in re.findall(r"^\s*ok \d+ - (.*) # SKIP ?(.*)$", text, re.M):
        print(f"skipped: {name}: {why}")
    if bad:
        print("--- tests in JavaScript")
        print(text[-8000:])

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
    print(f"--- {name}, last {min(len(lines), 30)} lines")
    print("\n".join(lines[-30:]))

for test in unsteady:
    print(f"unsteady: {test['name']} failed ({test['result']} in {test['duration']:.1f} s), and passed alone")
    print("\n".join(re.findall(r"^.*:\d+:[FE]:.*$", test.get("stdout") or "", re.M)))
if passed + failed == 0:
    print("no test was selected")
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed or passed == 0 else 0)
