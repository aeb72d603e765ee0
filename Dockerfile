# All programs in one image (target rowbell), and the proxy of docker-compose.yml (target proxy).
FROM debian:bookworm-slim AS build
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
      gcc libc6-dev meson ninja-build pkg-config python3 libpq-dev libuv1-dev libhiredis-dev libjson-c-dev \
      libcurl4-openssl-dev libc-ares-dev libssl-dev node-llhttp uthash-dev \
    && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN meson setup /build /src --prefix=/usr -Dbuildtype=release -Dtests=false \
    && DESTDIR=/out meson install -C /build

FROM debian:bookworm-slim AS proxy
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends nginx-light curl \
    && rm -rf /var/lib/apt/lists/* /etc/nginx/sites-enabled/default
COPY docker-proxy.conf /etc/nginx/nginx.conf
EXPOSE 8080
STOPSIGNAL SIGQUIT
CMD ["nginx", "-g", "daemon off;"]

FROM debian:bookworm-slim AS rowbell
# curl asks /readyz for the health checks.
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
      libpq5 libuv1 libhiredis0.14 libjson-c5 libcurl4 libc-ares2 libssl3 ca-certificates curl \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /out/usr/bin/ /usr/bin/
USER nobody
CMD ["rowbell", "--help"]
