"""Puts files into a session, gives one to a page, watches what happens, and takes a directory home, with the public Python client.

    pip install kernel==0.80.0
    CASEMENT_KEY=… python files.py

It leaves work.zip where it runs.
"""
import os

from kernel import Kernel

client = Kernel(
    base_url=os.environ.get("CASEMENT_URL", "http://127.0.0.1:8080"),  # all that points it to Casement
    api_key=os.environ["CASEMENT_KEY"],
)
fs = client.browsers.fs

session = client.browsers.create(headless=True)
id = session.session_id
try:
    fs.upload(id, files=[  # all of them or none; directories are made
        {"dest_path": "/tmp/work/notes.txt", "file": b"hello"},
        {"dest_path": "/tmp/work/data/table.csv", "file": b"a,b\n1,2\n"},
    ])
    fs.set_file_permissions(id, path="/tmp/work/notes.txt", mode="600")
    for entry in fs.list_files(id, path="/tmp/work"):
        print(entry.mode, entry.size_bytes, entry.path)

    watch = fs.watch.start(id, path="/tmp/work", recursive=True)  # kept from now on, until they are read
    fs.write_file(id, b"new", path="/tmp/work/data/new.txt")
    with fs.watch.events(watch.watch_id, id=id) as events:
        for event in events:
            print(event.type, event.path)
            break
    fs.watch.stop(watch.watch_id, id=id)

    print(fs.read_file(id, path="/tmp/work/data/new.txt").text())
    fs.download_dir_zip(id, path="/tmp/work").write_to_file("work.zip")
finally:
    client.browsers.delete_by_id(id)  # its files end with it
