"""A causal model reads a video frame by frame: three hundred frames at constant memory, with the scores of one pass."""
import time

import torch

from hot_nbdev import HOTSegmenter, SegmenterConfig, steps

torch.manual_seed(0)
model = HOTSegmenter(SegmenterConfig(in_channels=3, classes=4, patch=(1, 4, 4), dim=32, depth=2, heads=4, causal=(0,),
                                     kernel="elu")).eval()           # with a kernel the state has a fixed size
video, state, kept, scores = torch.randn(1, 300, 16, 16, 3), None, [], []

with torch.no_grad():
    began = time.perf_counter()
    for frame in video.split(1, dim=1):                              # (1, 1, 16, 16, 3), as a camera would deliver it
        found, state = steps(model, frame, state)
        scores.append(found)
        kept.append(state.nbytes)
    seconds = time.perf_counter() - began
    whole = model(video)                                             # what a model sees that waits for the end

difference = (torch.cat(scores, 1) - whole).abs().max().item()
print(f"{len(scores)} frames, {kept[-1] / 1024:.0f} KiB kept, {1000 * seconds / len(scores):.1f} ms a frame, "
      f"largest difference from one pass {difference:.0e}")
assert len(set(kept)) == 1 and difference < 1e-3
