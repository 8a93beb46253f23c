#!/bin/sh
# Makes configure and Makefile.in. Needs autoconf, automake and pkg-config.
set -e
cd "$(dirname "$0")"
autoreconf --install
