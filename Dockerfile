# graftlet's image: the built file and a pinned Node, without a shell.
#
#   docker build --tag graftlet .                      for amd64
#   docker build --tag graftlet --build-arg ARCH=arm64 .
#
# No stage but the first runs anything, and that one runs here: the image for another architecture needs no emulation.
#
# What is not given is pinned by the digest of its index, which has both architectures. A newer one:
#   docker buildx imagetools inspect docker.io/library/node:26-bookworm-slim
#
# BUILD      runs the build: Node 22.19 or newer, npm and sh. npm fetches what package-lock.json pins, from the registry, or,
#            where the build has no network, from a cache that this image brings (npm_config_cache, npm_config_offline=true).
# BASE       what the image stands on: glibc and libstdc++ of ARCH, CA certificates.
# LIBRARIES  an image of ARCH with libatomic1 of Debian's, which Node needs and distroless images lack, and its nsenter, with which
#            a node of `local: true` enters the mounts of the machine.
ARG BUILD=docker.io/library/node:26-bookworm-slim@sha256:367679cf9792759492a486e4aa4b421764d71a9546a6dae8aab81a99eb797b3e
ARG BASE=gcr.io/distroless/cc-debian12:nonroot@sha256:9dac0a79194e45a7da0158a9c6da57b217585af0786db3845d1f0ec1a0dd182f
ARG LIBRARIES=docker.io/library/node:26-bookworm-slim@sha256:367679cf9792759492a486e4aa4b421764d71a9546a6dae8aab81a99eb797b3e
ARG ARCH=amd64

FROM ${BUILD} AS build
ARG ARCH
WORKDIR /build
COPY .npmrc package.json package-lock.json LICENSE ./
RUN npm ci
COPY tsconfig.json ./
COPY tools tools
COPY src src
COPY providers providers
RUN node_modules/.bin/node tools/build.ts
# The Node of ARCH is that of package-lock.json too.
RUN case "${ARCH}" in amd64) cpu=x64 ;; arm64) cpu=arm64 ;; *) echo "ARCH is ${ARCH}: it is amd64 or arm64" >&2; exit 1 ;; esac \
  && mkdir /target && cp .npmrc package.json package-lock.json /target && cd /target \
  && npm ci --omit=dev --os=linux --libc=glibc --cpu=$cpu \
  && mkdir -p /out/usr/local/bin /out/usr/share/graftlet /out/usr/share/doc/graftlet /out/usr/share/doc/node \
  && cp node_modules/node-linux-$cpu/bin/node /out/usr/local/bin/node \
  && cp node_modules/node-linux-$cpu/LICENSE /out/usr/share/doc/node/ \
  && cp /build/dist/graftlet.mjs /out/usr/share/graftlet/ \
  && printf '#!/usr/local/bin/node\nimport("/usr/share/graftlet/graftlet.mjs");\n' >/out/usr/local/bin/graftlet \
  && chmod 755 /out/usr/local/bin/graftlet \
  && cp /build/LICENSE /build/dist/THIRD-PARTY-NOTICES.txt /out/usr/share/doc/graftlet/

FROM --platform=linux/${ARCH} ${LIBRARIES} AS libraries

FROM --platform=linux/${ARCH} ${BASE}
COPY --from=libraries /usr/lib/*-linux-gnu*/libatomic.so.1* /usr/lib/*-linux-gnu*/libselinux.so.1 /usr/lib/*-linux-gnu*/libpcre2-8.so.0* /usr/lib/
COPY --from=libraries /usr/bin/nsenter /usr/bin/
COPY --from=build /out/ /
USER 65532:65532
# As the first line of src/main.ts has them. The chart sets another NODE_OPTIONS for a fleet.
ENV MALLOC_ARENA_MAX=2 NODE_OPTIONS=--max-semi-space-size=1
ENTRYPOINT ["/usr/local/bin/node", "--no-parallel-scavenge", "--heap-growing-percent=100", "/usr/share/graftlet/graftlet.mjs"]
