# agentfs for systems other than Linux, or for a machine of its own. How to run it: docs/containers.md
FROM python:3.13-slim

RUN apt-get update \
    && apt-get install --yes --no-install-recommends bubblewrap ca-certificates git \
    && rm -rf /var/lib/apt/lists/*

COPY pyproject.toml README.md LICENSE /src/
COPY agentfs /src/agentfs
COPY schemas /src/schemas
RUN pip install --no-cache-dir /src && rm -rf /src

# On a Linux host, what is made in a mounted folder belongs to this number: --build-arg UID=$(id -u)
ARG UID=1000
RUN useradd --create-home --uid "$UID" agentfs \
    && install --directory --owner agentfs /workspace

USER agentfs
WORKDIR /workspace
VOLUME ["/workspace", "/home/agentfs"]
ENTRYPOINT ["agentfs"]
CMD ["watch"]
