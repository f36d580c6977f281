# SPDX-License-Identifier: Apache-2.0
"""What the Python tools of foregather share: file writers, readers and the config law.

The package decides how files look; what each tool takes and prints is decided in that tool's own
module.
"""
