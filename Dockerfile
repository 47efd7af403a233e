# The images of the action. /opt/repro-gate is the gate: with its own Python, C library, git and setpriv, it runs in any Linux image. /opt/venv is
# an environment to train in, for who has no image.
#
#   docker build --target gate .                         the gate alone (`:1-gate`): what comes into the image that somebody trains in
#   docker build --build-arg TORCH=cpu .                 with torch for the CPU (`:1-cpu`): runners without a GPU, tests
#   docker build .                                       with torch for CUDA (`:1`)
#
# Everything that pip installs is compared with a hash in requirements/. Nothing is compiled, so there is nothing to remove afterwards. A release
# names its packages' day (DEBIAN_SNAPSHOT), its commit (REVISION, VERSION) and the commit's time (SOURCE_DATE_EPOCH).

ARG BASE_NAME=docker.io/library/debian:bookworm-20260824-slim
ARG BASE_DIGEST=sha256:88200866dfff7ea7f5cbcb6ec7c8a701889efe6fe859fe64d6990e4b07ea4171
ARG BASE_IMAGE=${BASE_NAME}@${BASE_DIGEST}
ARG TORCH=cuda

# --- what every stage stands on: Python, and the user that the training runs as

FROM ${BASE_IMAGE} AS system
ARG DEBIAN_SNAPSHOT=
# Of the packages' versions, the base's digest and DEBIAN_SNAPSHOT are the lock; a pinned version would be gone from the mirrors in weeks.
# No file keeps a set-user-ID bit: training has no-new-privileges, and this is the second reason why `su` or `mount` gives it nothing.
# hadolint ignore=DL3008
RUN set -eu; \
    if [ -n "$DEBIAN_SNAPSHOT" ]; then \
      rm -f /etc/apt/sources.list.d/*; \
      for part in "debian bookworm" "debian bookworm-updates" "debian-security bookworm-security"; do \
        echo "deb [check-valid-until=no] http://snapshot.debian.org/archive/${part% *}/${DEBIAN_SNAPSHOT} ${part#* } main"; \
      done >/etc/apt/sources.list; \
    fi; \
    export DEBIAN_FRONTEND=noninteractive; \
    apt-get update -qq; \
    apt-get install -y -qq --no-install-recommends ca-certificates python3 python3-venv; \
    apt-get clean; \
    rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/* /var/log/apt /var/log/dpkg.log /var/log/alternatives.log; \
    groupadd --gid 64180 training; \
    useradd --no-log-init --uid 64180 --gid training --home-dir /nonexistent --no-create-home --shell /usr/sbin/nologin training; \
    rm -f /etc/passwd- /etc/shadow- /etc/group- /etc/gshadow-; \
    find / -xdev ! -type l -perm /6000 -exec chmod a-s {} +

# --- pip, and what turns the checkout into a wheel; none of this reaches the image

FROM system AS builder
ENV PIP_NO_CACHE_DIR=1 PIP_NO_COMPILE=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
COPY requirements/build.lock ./
RUN python3 -m venv /build/venv && /build/venv/bin/pip install --quiet --require-hashes --only-binary :all: --requirement build.lock

# --- the training's environment. Bytecode is compiled here, since nobody may write it later, and is never compared with a file's time, which
#     a copy or a rewrite of the image may change. What changes least comes apart from the rest: NVIDIA's libraries are most of the bytes.

FROM builder AS training
ARG TORCH
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
COPY requirements/image-${TORCH}.lock ./
RUN set -eu; \
    index=; \
    if [ "$TORCH" = cpu ] && [ -n "$TORCH_INDEX" ]; then index="--extra-index-url=$TORCH_INDEX"; fi; \
    python3 -m venv --without-pip /opt/venv; \
    /build/venv/bin/pip --python /opt/venv/bin/python install --quiet --require-hashes --only-binary :all: $index \
      --requirement "image-${TORCH}.lock"; \
    python3 -m compileall -qq -j 0 --invalidation-mode unchecked-hash /opt/venv || echo "some files are for a newer Python"; \
    mkdir -p /layers/cuda; \
    for name in nvidia triton; do \
      from="$(echo /opt/venv/lib/python3*/site-packages)/$name"; \
      if [ -d "$from" ]; then mv "$from" /layers/cuda/; fi; \
    done

# --- the gate, a folder that needs nothing of the image that it is in. Its programs name its own loader and libraries (DT_RPATH, which comes
#     before LD_LIBRARY_PATH), and it lies where every user can read it. Of xxhash, the extension for each Python that trainings may
#     have. Pygments, which rich takes for source code alone, stays out.

FROM builder AS gate-folder
# hadolint ignore=DL3008
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends binutils git patchelf util-linux && rm -rf /var/lib/apt/lists/*
COPY requirements/gate.lock ./
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
RUN mkdir -p /opt/repro-gate/base/bin /opt/repro-gate/base/lib /opt/repro-gate/tools; \
    cp -L /usr/bin/python3.11 /opt/repro-gate/base/bin/; \
    cp -a /usr/lib/python3.11 /opt/repro-gate/base/lib/; \
    library=/opt/repro-gate/base/lib/python3.11; \
    for name in config-3.11-x86_64-linux-gnu ensurepip idlelib lib2to3 pydoc_data test tkinter turtledemo __pycache__; do rm -rf "${library:?}/$name"; done; \
    for name in '*test' _curses _dbm nis readline xxlimited; do find "$library/lib-dynload" -name "$name*" -delete; done; \
    cp -L /usr/bin/env /usr/bin/git /usr/bin/setpriv /usr/bin/unshare /opt/repro-gate/tools/; \
    /usr/bin/python3 -m venv --without-pip /opt/repro-gate; \
    ln -sfn ../base/bin/python3.11 /opt/repro-gate/bin/python3; \
    sed -i 's|^home = .*|home = /opt/repro-gate/base/bin|; /^executable\|^command/d' /opt/repro-gate/pyvenv.cfg; \
    /build/venv/bin/pip --python /opt/repro-gate/bin/python install --quiet --require-hashes --only-binary :all: --requirement /build/gate.lock; \
    rm -rf /opt/repro-gate/bin/uvx /opt/repro-gate/bin/[Aa]ctivate* /opt/repro-gate/lib/python3.11/site-packages/pygments; \
    grep -A 999 '^xxhash==' /build/gate.lock | sed '2,${/^[a-z]/,$d}' >/build/xxhash.lock; \
    for version in 3.9 3.10 3.12 3.13 3.14; do \
      /build/venv/bin/pip install --quiet --require-hashes --only-binary :all: --python-version "$version" --no-deps --target "/build/xxhash-$version" \
        --requirement /build/xxhash.lock; \
      cp "/build/xxhash-$version"/xxhash/_xxhash.*.so /opt/repro-gate/lib/python3.11/site-packages/xxhash/; \
    done; \
    find /opt/repro-gate -type f -name '*.so' -exec strip --strip-unneeded {} +; \
    loader="$(patchelf --print-interpreter /usr/bin/python3.11)"; \
    cp -L "$loader" /opt/repro-gate/base/lib/loader; \
    find /opt/repro-gate -type f '(' -perm -1 -o -name '*.so' ')' -exec ldd {} ';' 2>/dev/null \
      | awk '$2 == "=>" && $3 ~ "^/(usr/)?lib/" { print $3 }' | sort -u | xargs cp -L --target-directory /opt/repro-gate/base/lib; \
    for program in /opt/repro-gate/base/bin/python3.11 /opt/repro-gate/tools/*; do \
      patchelf --set-interpreter /opt/repro-gate/base/lib/loader --force-rpath --set-rpath /opt/repro-gate/base/lib "$program"; \
    done; \
    python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/repro-gate
COPY pyproject.toml README.md LICENSE source/
COPY docs/checks source/docs/checks
COPY docs/causes source/docs/causes
COPY docs/reasons.md source/docs/
COPY repro_gate source/repro_gate
ARG SOURCE_DATE_EPOCH=0
RUN /build/venv/bin/pip wheel --quiet --no-deps --no-build-isolation --no-index --wheel-dir dist ./source \
    && /build/venv/bin/pip --python /opt/repro-gate/bin/python install --quiet --no-deps --no-index dist/*.whl \
    && /opt/repro-gate/bin/python -I -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/repro-gate/lib

# --- `:1-gate`: the folder, and nothing else

FROM scratch AS gate
COPY --from=gate-folder /opt/repro-gate/ /opt/repro-gate/
ENV LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 REPRO_GATE_SANDBOX=own-user
ARG REVISION=
ARG SOURCE=
ARG VERSION=
LABEL org.opencontainers.image.title="Repro Gate, without torch" \
      org.opencontainers.image.description="What Repro Gate puts into the image that a training runs in" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0"
ENTRYPOINT ["/opt/repro-gate/bin/python", "-I", "-m", "repro_gate.github"]

# --- `:1` and `:1-cpu`

FROM system AS image
COPY --from=training /layers/cuda/ /opt/venv/lib/python3.11/site-packages/
COPY --from=training /opt/venv/ /opt/venv/
COPY --from=gate-folder /opt/repro-gate/ /opt/repro-gate/
RUN ln -s /opt/repro-gate/tools/git /usr/local/bin/git

# The NVIDIA pair is what the host's runtime goes by when it decides to let a GPU in. The rest: training's `python` is /opt/venv's, text is
# UTF-8, and the gate, which GitHub starts as root, gives the training a user of its own.
ENV PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    LANG=C.UTF-8 \
    PYTHONDONTWRITEBYTECODE=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    REPRO_GATE_SANDBOX=own-user

ARG BASE_NAME
ARG BASE_DIGEST
ARG REVISION=
ARG SOURCE=
ARG VERSION=
LABEL org.opencontainers.image.title="Repro Gate" \
      org.opencontainers.image.description="A pull-request gate for reproducible training" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="${BASE_NAME}" \
      org.opencontainers.image.base.digest="${BASE_DIGEST}"

ENTRYPOINT ["/opt/repro-gate/bin/python", "-I", "-m", "repro_gate.github"]
