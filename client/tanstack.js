// The adapter for TanStack Query: a stream that invalidates the queries of a QueryClient.
import { connect } from "./rowbell.js";

// Options and result are those of connect(), but for invalidate and invalidateAll, which are made here.
export function connectQueryClient(queryClient, url, options = {}, host) {
  return connect(
    url,
    {
      ...options,
      invalidate(queryKeys) {
        for (const queryKey of queryKeys) queryClient.invalidateQueries({ queryKey });
      },
      invalidateAll() {
        queryClient.invalidateQueries();
      },
      // What was read before the stream began may have changed before it began.
      onReady() {
        queryClient.invalidateQueries();
        options.onReady?.();
      },
    },
    host,
  );
}
