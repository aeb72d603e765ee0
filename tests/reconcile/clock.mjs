// Milliseconds since 1970 with a fraction: comparable with PostgreSQL's clock on the same machine.
export const now = () => performance.timeOrigin + performance.now();

export const sleep = (ms, signal) => new Promise((resolve) => {
    const timer = setTimeout(done, ms);
    function done() {
        clearTimeout(timer);
        signal?.removeEventListener('abort', done);
        resolve();
    }
    if (signal?.aborted) done();
    else signal?.addEventListener('abort', done);
});

export async function until(what, timeoutMs, condition) {
    for (const end = now() + timeoutMs; !(await condition()); await sleep(20)) {
        if (now() > end) throw new Error(`${what}: not within ${timeoutMs / 1000} s`);
    }
}
