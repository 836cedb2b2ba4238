# sorites[demo] on a CPU, from the source beside this file. Build: docker build -t sorites .
# Run: docker run -v "$PWD":/work -v sorites-cache:/var/cache/sorites sorites run demo
# Every RUN line but the first is a step of docker/install.sh, which tests and proof run without Docker.
FROM python:3.11-slim
RUN apt-get update && apt-get install --yes --no-install-recommends dpkg && rm -rf /var/lib/apt/lists/*
COPY pyproject.toml constraints.txt README.md LICENSE /source/
COPY src /source/src
COPY docker/install.sh /source/docker/install.sh
RUN sh /source/docker/install.sh /source /opt/sorites
ENV PATH="/opt/sorites/bin:$PATH" SORITES_CACHE=/var/cache/sorites
WORKDIR /work
ENTRYPOINT ["sorites"]
CMD ["--help"]
