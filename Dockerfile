# The image of the action. Two Python environments lie in it and share nothing: /opt/gate is the gate's own, /opt/venv is the training's.
#
#   docker build .                                       torch for CUDA
#   docker build --build-arg TORCH=cpu .                 torch for the CPU: tests, and runners without a GPU
#
# Everything that pip installs is compared with a hash in requirements/. Nothing is compiled, so there is nothing to remove afterwards. A release
# names its packages' day (DEBIAN_SNAPSHOT), its commit (REVISION, VERSION) and the commit's time (SOURCE_DATE_EPOCH).

ARG BASE_NAME=docker.io/library/debian:bookworm-20260824-slim
ARG BASE_DIGEST=sha256:88200866dfff7ea7f5cbcb6ec7c8a701889efe6fe859fe64d6990e4b07ea4171
ARG BASE_IMAGE=${BASE_NAME}@${BASE_DIGEST}
ARG TORCH=cuda

# --- what every stage stands on: Python, git, setpriv, and the user that the training runs as

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
    apt-get install -y -qq --no-install-recommends ca-certificates git python3 python3-venv util-linux; \
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

# --- the gate's environment, which has no pip

FROM builder AS gate
COPY requirements/gate.lock ./
RUN python3 -m venv --without-pip /opt/gate \
    && /build/venv/bin/pip --python /opt/gate/bin/python install --quiet --require-hashes --only-binary :all: --requirement gate.lock
COPY pyproject.toml README.md LICENSE source/
COPY docs/checks source/docs/checks
COPY docs/causes source/docs/causes
COPY docs/reasons.md source/docs/
COPY repro_gate source/repro_gate
ARG SOURCE_DATE_EPOCH=0
RUN /build/venv/bin/pip wheel --quiet --no-deps --no-build-isolation --no-index --wheel-dir dist ./source \
    && /build/venv/bin/pip --python /opt/gate/bin/python install --quiet --no-deps --no-index dist/*.whl \
    && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/gate

# --- the image.

FROM system AS image
COPY --from=training /layers/cuda/ /opt/venv/lib/python3.11/site-packages/
COPY --from=training /opt/venv/ /opt/venv/
COPY --from=gate /opt/gate/ /opt/gate/
COPY --chmod=0755 entrypoint /entrypoint

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

ENTRYPOINT ["/entrypoint"]
