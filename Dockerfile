# fpdt for planning, and for training on CPUs: no CUDA and no MPI.
#   docker build -t fpdt .
#   docker run --rm -v "$PWD":/work fpdt fpdt-plan search --model llama3-8b \
#     --cluster a100-80g-x4 --seq-len 1M
FROM debian:12-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends \
      g++ cmake ninja-build libfmt-dev libyaml-cpp-dev nlohmann-json3-dev libeigen3-dev \
      libcli11-dev libxxhash-dev zlib1g-dev \
    && rm -rf /var/lib/apt/lists/*
COPY . /src
# FPDT_NATIVE=OFF: the image runs on other processors than the one that builds it.
RUN cmake -S /src -B /build -G Ninja -DCMAKE_BUILD_TYPE=Release -DFPDT_TESTS=OFF \
      -DFPDT_CUDA=OFF -DFPDT_MPI=OFF -DFPDT_NATIVE=OFF \
    && cmake --build /build && cmake --install /build --prefix /opt/fpdt --strip

FROM debian:12-slim
RUN apt-get update && apt-get install -y --no-install-recommends libfmt9 libyaml-cpp0.7 zlib1g \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/fpdt /opt/fpdt
ENV PATH=/opt/fpdt/bin:$PATH
WORKDIR /work
CMD ["fpdt-plan", "--help"]
