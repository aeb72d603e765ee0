import type { Connection, Options, QueryKey } from "./rowbell.js";

/** What is used of a QueryClient of TanStack Query (v4 and v5). */
export interface QueryInvalidator {
  invalidateQueries(filters?: { queryKey?: QueryKey }): Promise<void>;
}

/**
 * connect() with the cache of TanStack Query behind it. When the stream's position is known, what the cache has by then
 * is invalidated too, as it may have been read too early: await `ready` before the first query, or connect first.
 */
export function connectQueryClient(
  queryClient: QueryInvalidator,
  url: string | (() => string | Promise<string>),
  options?: Omit<Options, "invalidate" | "invalidateAll">,
  host?: typeof globalThis,
): Connection;
