# SPDX-License-Identifier: Apache-2.0
"""Messages of the public API, made from the .proto files at build time."""
