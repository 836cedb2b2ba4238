"""The workbench: a local web app that shows runs, finds images, and turns a shift by hand."""
