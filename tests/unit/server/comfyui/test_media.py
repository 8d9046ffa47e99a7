"""Videos and sounds, as clients are told of them and read them."""

from __future__ import annotations

import io

import av

from tests.unit.server.comfyui.prompts import ComfyClient, picture_prompt


def test_a_video_is_listed_as_a_moving_picture(client: ComfyClient) -> None:
    prompt = picture_prompt(colour=200)
    prompt["1"]["inputs"]["batch_size"] = 5
    prompt["3"] = {"class_type": "CreateVideo", "inputs": {"images": ["1", 0], "fps": 10.0}}
    prompt["2"] = {
        "class_type": "SaveVideo",
        "inputs": {
            "video": ["3", 0],
            "filename_prefix": "video/clip",
            "format": "auto",
            "format.codec": "auto",
        },
    }
    output = client.run(prompt)["outputs"]["2"]
    assert output["animated"] == [True]
    (file,) = output["images"]
    assert (file["subfolder"], file["type"]) == ("video", "output")
    assert file["filename"].startswith("clip_take_")
    reply = client.view(file)
    assert reply.headers["content-type"] == "video/mp4"
    with av.open(io.BytesIO(reply.content), "r") as container:
        assert len(list(container.decode(video=0))) == 5
    part = client.http.get("/view", params=file, headers={"Range": "bytes=0-9"})
    assert (part.status_code, part.content) == (206, reply.content[:10])


def test_a_sound_is_listed_as_audio(client: ComfyClient) -> None:
    silence = {"duration": 0.5, "sample_rate": 8000, "channels": 1}
    prompt = {
        "1": {"class_type": "EmptyAudio", "inputs": silence},
        "2": {
            "class_type": "SaveAudio",
            "inputs": {"audio": ["1", 0], "filename_prefix": "audio/s"},
        },
        "3": {"class_type": "PreviewAudio", "inputs": {"audio": ["1", 0]}},
    }
    outputs = client.run(prompt)["outputs"]
    (saved,), (shown,) = outputs["2"]["audio"], outputs["3"]["audio"]
    assert (saved["subfolder"], saved["type"], shown["type"]) == ("audio", "output", "temp")
    for file in (saved, shown):
        reply = client.view(file)
        assert reply.headers["content-type"].startswith("audio/")
        with av.open(io.BytesIO(reply.content), "r") as container:
            assert container.streams.audio[0].rate == 8000
