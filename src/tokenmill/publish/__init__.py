"""The run report as a page that talks: `tokenmill publish`."""
