/** A query key as caches such as TanStack Query have it: compared by value, matched by its beginning. */
export type QueryKey = readonly unknown[];

/**
 * Which queries read a table. A function gets the key of the row that changed, or "" for the whole collection, and must
 * then return what covers every row. `rowbell generate client` writes such a map.
 */
export type KeysByTable = Readonly<Record<string, readonly QueryKey[] | ((key: string) => readonly QueryKey[])>>;

export interface Change {
  /** The name under which the table is published. */
  readonly table: string;
  /** The primary key as a URL path renders it (see rowKey). Empty: the whole collection changed. */
  readonly key: string;
  /** A hint. Fetch again whatever it is, and take a 404 as gone. */
  readonly op: "create" | "update" | "delete";
}

/** The gateway's reasons, and two of this library: `position_unknown` (the connection ended before it said where it
 *  began) and `tab_missed` (this tab slept while another one received). */
export type ResetReason =
  | "history_expired"
  | "id_unreadable"
  | "id_ahead"
  | "replay_limit"
  | "stream_rewound"
  | "stream_damaged"
  | "position_unknown"
  | "tab_missed"
  | (string & {});

export interface Options {
  /** Only changes of these tables, at most 64. Default: all that the subscriber may see. */
  tables?: readonly string[];
  /** Which queries read which table. */
  keysByTable?: KeysByTable;
  /** Called with the queries to fetch again, each once, at most every `coalesceMs`. */
  invalidate?(queryKeys: QueryKey[]): void;
  /** Called when everything on display must be fetched again; after a random part of `spreadMs`. */
  invalidateAll?(reason: ResetReason): void;
  /** Called at once for every change. */
  onChange?(change: Change, lastEventId: string): void;
  /** Called at once for every reset. */
  onReset?(reason: ResetReason, lastEventId: string): void;
  /** Called once, when the position is known: what is read from now on is covered by the stream. */
  onReady?(): void;
  onState?(state: State): void;
  /** Called for everything that is heard, heartbeats included. */
  onPosition?(lastEventId: string): void;
  /** Sends cookies to another origin. */
  withCredentials?: boolean;
  /**
   * Tabs of one origin with the same name (and tables) share a connection. Put the identity of the user or tenant in
   * it when a cookie decides what the stream shows. false: a connection of its own. Default: the URL; false when the
   * URL is a function.
   */
  share?: string | false;
  /** How long changes are collected before `invalidate` is called. Default 250. */
  coalesceMs?: number;
  /** Over how long the reads after a reset are spread. Default 5000. */
  spreadMs?: number;
  /** A connection that is silent for so long is opened again; more than two heartbeats of the gateway. Default 60000. */
  silenceMs?: number;
}

export type State = "connecting" | "open";

export interface Connection {
  /** Resolves when the position is known: what is read from then on is covered by the stream. */
  readonly ready: Promise<void>;
  readonly state: State;
  /** The last position; "" before the first. */
  readonly lastEventId: string;
  close(): void;
}

/**
 * Follows the stream at `url` until close(). A function is called for each connection, for a fresh ticket say; when it
 * throws or rejects, that counts as a failed connection.
 */
export function connect(
  url: string | (() => string | Promise<string>),
  options?: Options,
  host?: typeof globalThis,
): Connection;

/** The key of a row as the stream writes it: each part percent-encoded (RFC 3986), joined by "/". */
export function rowKey(...parts: (string | number | bigint | boolean)[]): string;
