"""Setting up and starting: what `webui.sh` and `webui.bat` are thin shells around."""
