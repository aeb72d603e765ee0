# All programs in one image (target rowbell), and the proxy of docker-compose.yml (target proxy).
FROM debian:trixie-slim AS build
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
      gcc libc6-dev meson ninja-build pkg-config python3 libpq-dev libuv1-dev libhiredis-dev libjson-c-dev \
      libcurl4-openssl-dev libc-ares-dev libssl-dev libllhttp-dev uthash-dev \
    && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN meson setup /build /src --prefix=/usr -Dbuildtype=release -Dtests=false \
    && DESTDIR=/out meson install -C /build

FROM debian:trixie-slim AS proxy
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends nginx-light curl \
    && rm -rf /var/lib/apt/lists/* /etc/nginx/sites-enabled/default
COPY docker-proxy.conf /etc/nginx/nginx.conf
EXPOSE 8080
STOPSIGNAL SIGQUIT
USER nobody
CMD ["nginx", "-e", "stderr", "-g", "daemon off;"]

FROM debian:trixie-slim AS rowbell
# curl asks /readyz for the health checks.
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
      libpq5 libuv1t64 libhiredis1.1.0 libjson-c5 libcurl4t64 libcares2 libllhttp9.2 libssl3t64 ca-certificates curl \
    && rm -rf /var/lib/apt/lists/*
# Where docker-compose.yml mounts volumes: a new volume takes the owner of its directory. 999 is postgres and redis in their images.
RUN cd / && for name in setup postgres roles redis migrate relay dispatcher gateway demo operator rekey app; do \
      install -d -o 999 -g 999 -m 700 /secrets/$name; done
COPY --from=build /out/usr/bin/ /usr/bin/
COPY docker-setup docker-entrypoint /usr/bin/
COPY migrations/roles.sql /usr/share/rowbell/
USER nobody
ENTRYPOINT ["docker-entrypoint"]
CMD ["rowbell", "--help"]
