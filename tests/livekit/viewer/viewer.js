// A viewer of a room, with the real livekit-client. It does what docs/guides/livekit.md advises: of the generations of an
// avatar it shows the one with the highest epoch that has brought a picture. Participants without an epoch count as 0.
"use strict";

const { Room, RoomEvent } = LivekitClient;

const viewer = {
  pictures: {}, // How many, by identity.
  brightness: {}, // Of the middle of the last picture, by identity.
  corners: {}, // The colours of the upper left corner of all pictures, by identity.
  loudest: {}, // The highest level of sound, by identity.
  shown: [], // [time in ms since 1970, epoch] of each picture that was shown.
  tracks: 0, // How many were subscribed to.
  epoch: -1, // The one that is shown.
  state: "",
};

const now = () => performance.timeOrigin + performance.now();

function watchPictures(track, participant) {
  const video = track.attach();
  video.muted = true;
  video.width = 64;
  document.documentElement.append(video);
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const drawing = canvas.getContext("2d", { willReadFrequently: true });
  const colour = (x, y) => {
    drawing.drawImage(video, x, y, 1, 1, 0, 0, 1, 1);
    return [...drawing.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const note = () => {
    const { identity, attributes } = participant;
    const epoch = Number(attributes["dhsched.epoch"] || 0);
    viewer.pictures[identity] = (viewer.pictures[identity] || 0) + 1;
    viewer.brightness[identity] = colour(video.videoWidth / 2, video.videoHeight / 2)[0];
    (viewer.corners[identity] ||= []).push(colour(4, 4));
    if (epoch >= viewer.epoch) {
      viewer.epoch = epoch;
      viewer.shown.push([now(), epoch]);
    }
    video.requestVideoFrameCallback(note);
  };
  video.requestVideoFrameCallback(note);
}

function watchSound(track, participant) {
  const context = new AudioContext();
  const meter = context.createAnalyser();
  const samples = new Float32Array(meter.fftSize);
  track.attach(); // Chromium decodes what somebody plays.
  context.createMediaStreamSource(new MediaStream([track.mediaStreamTrack])).connect(meter);
  setInterval(() => {
    meter.getFloatTimeDomainData(samples);
    const level = Math.max(...samples.map(Math.abs));
    viewer.loudest[participant.identity] = Math.max(viewer.loudest[participant.identity] || 0, level);
  }, 50);
}

viewer.join = async (url, token) => {
  const room = (viewer.room = new Room());
  room.on(RoomEvent.TrackSubscribed, (track, _, participant) => {
    viewer.tracks += 1;
    (track.kind === "video" ? watchPictures : watchSound)(track, participant);
  });
  room.on(RoomEvent.ConnectionStateChanged, (state) => (viewer.state = state));
  await room.connect(url, token);
};

viewer.identities = () => [...viewer.room.remoteParticipants.values()].map((each) => each.identity).sort();

// The longest time without a picture since `from`, in ms, and the epochs of the pictures before and after it.
viewer.gap = (from) => {
  const first = Math.max(0, viewer.shown.findIndex((each) => each[0] >= from) - 1);
  const gaps = viewer.shown.slice(first + 1).map(([at, epoch], n) => {
    const [before, earlier] = viewer.shown[first + n];
    return [at - before, earlier, epoch];
  });
  return gaps.reduce((longest, each) => (each[0] > longest[0] ? each : longest), [0, 0, 0]);
};

viewer.firstOf = (epoch) => (viewer.shown.find((each) => each[1] === epoch) || [0])[0];
