//! The frames of a backlog file: a kind (u32), the CRC-32 of the payload (u32), the length of the payload
//! (u64), and the payload. A file is read where it was written, so numbers are in the machine's order. The
//! first incomplete or damaged frame ends the file.
//!
//! The payload of a snapshot and of switches is MessagePack. That of a batch is the length of a head (u64),
//! the head, which is MessagePack and has a number in place of each chunk's units, and the units of all
//! chunks.

use std::{
    fs::File,
    io::{self, Read, Seek as _, SeekFrom, Write as _},
    sync::Arc,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    compose::Composer,
    preload::{
        batch::{Batch, Chunk},
        clock::Reading,
        merge::Merger,
        records::Unit,
    },
    sources::switches::records::Switch,
};

const SNAPSHOT: u32 = u32::from_ne_bytes(*b"snap");
const BATCH: u32 = u32::from_ne_bytes(*b"btch");
const SWITCHES: u32 = u32::from_ne_bytes(*b"swch");
const HEADER_BYTES: usize = 16;
/// Maximum bytes of a frame that is read. The drain never makes one as large.
const MAX_FRAME_BYTES: u64 = 1 << 28;

/// A batch without its units.
#[derive(Serialize, Deserialize)]
struct Head {
    settled_ns: u64,
    reading: Option<Reading>,
    busy: Vec<u32>,
    chunks: Vec<(u32, Piece)>,
}

/// A chunk without its units.
#[derive(Serialize, Deserialize)]
enum Piece {
    Units(u64),
    Other(Chunk),
}

/// A frame after the snapshot.
#[derive(Debug)]
pub(super) enum Frame {
    Batch(Batch),
    Switches(Vec<Switch>),
}

/// Writes a file.
#[derive(Debug)]
pub(super) struct Writer {
    file: Arc<File>,
    /// The frame that is made.
    bytes: Vec<u8>,
}

impl Writer {
    pub(super) fn new(file: Arc<File>) -> Self {
        Self { file, bytes: Vec::new() }
    }

    /// Empties the file and writes a snapshot.
    pub(super) fn start(&mut self, snapshot: &Snapshot<'_>) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.as_ref().seek(SeekFrom::Start(0))?;
        let packed = pack(snapshot)?;
        self.write(SNAPSHOT, |bytes| bytes.extend(packed))
    }

    pub(super) fn batch(&mut self, batch: &Batch) -> io::Result<()> {
        let piece = |chunk: &Chunk| match chunk {
            Chunk::Units(units) => Piece::Units(units.len() as u64),
            other => Piece::Other(other.clone()),
        };
        let head = pack(&Head {
            settled_ns: batch.settled_ns,
            reading: batch.reading,
            busy: batch.busy.clone(),
            chunks: batch.chunks.iter().map(|(id, chunk)| (*id, piece(chunk))).collect(),
        })?;
        self.write(BATCH, |bytes| {
            bytes.extend((head.len() as u64).to_ne_bytes());
            bytes.extend(head);
            for (_, chunk) in &batch.chunks {
                if let Chunk::Units(units) = chunk {
                    let at = bytes.len();
                    bytes.resize(at + size_of_val(&units[..]), 0);
                    for (to, word) in bytes[at..].chunks_exact_mut(8).zip(units.as_flattened()) {
                        to.copy_from_slice(&word.to_ne_bytes());
                    }
                }
            }
        })
    }

    pub(super) fn switches(&mut self, switches: &[Switch]) -> io::Result<()> {
        let packed = pack(&switches)?;
        self.write(SWITCHES, |bytes| bytes.extend(packed))
    }

    fn write(&mut self, kind: u32, payload: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let bytes = &mut self.bytes;
        bytes.clear();
        bytes.resize(HEADER_BYTES, 0);
        payload(bytes);
        let (header, payload) = bytes.split_at_mut(HEADER_BYTES);
        header[..4].copy_from_slice(&kind.to_ne_bytes());
        header[4..8].copy_from_slice(&crc32fast::hash(payload).to_ne_bytes());
        header[8..].copy_from_slice(&(payload.len() as u64).to_ne_bytes());
        self.file.as_ref().write_all(bytes)
    }
}

/// Reads a file.
pub(super) struct Reader<R> {
    file: R,
}

impl<R: Read> Reader<R> {
    pub(super) fn new(file: R) -> Self {
        Self { file }
    }

    /// Returns the snapshot at the start of the file; `None` if there is no whole one.
    pub(super) fn snapshot<T: DeserializeOwned>(&mut self) -> Option<T> {
        let (kind, payload) = self.frame()?;
        (kind == SNAPSHOT).then(|| rmp_serde::from_slice(&payload).ok())?
    }

    /// Passes over the snapshot.
    pub(super) fn skip_snapshot(&mut self) {
        self.frame();
    }

    /// Returns the next frame; `None` if there is no whole one.
    pub(super) fn next(&mut self) -> Option<Frame> {
        let (kind, payload) = self.frame()?;
        match kind {
            BATCH => batch(&payload).map(Frame::Batch),
            SWITCHES => rmp_serde::from_slice(&payload).ok().map(Frame::Switches),
            _ => None,
        }
    }

    fn frame(&mut self) -> Option<(u32, Vec<u8>)> {
        let mut header = [0; HEADER_BYTES];
        self.file.read_exact(&mut header).ok()?;
        let (kind, rest) = header.split_first_chunk::<4>()?;
        let (crc, rest) = rest.split_first_chunk::<4>()?;
        let length = u64::from_ne_bytes(*rest.first_chunk::<8>()?);
        let mut payload = Vec::new();
        // Grows by what is there, whatever the length says.
        let read = (&mut self.file).take(length.min(MAX_FRAME_BYTES)).read_to_end(&mut payload).ok()?;
        let is_whole = read as u64 == length && crc32fast::hash(&payload) == u32::from_ne_bytes(*crc);
        is_whole.then_some((u32::from_ne_bytes(*kind), payload))
    }
}

fn pack(value: &impl Serialize) -> io::Result<Vec<u8>> {
    rmp_serde::to_vec(value).map_err(io::Error::other)
}

fn batch(payload: &[u8]) -> Option<Batch> {
    let (length, rest) = payload.split_first_chunk::<8>()?;
    let (head, units) = rest.split_at_checked(usize::try_from(u64::from_ne_bytes(*length)).ok()?)?;
    let Head { settled_ns, reading, busy, chunks } = rmp_serde::from_slice(head).ok()?;
    let (units, rest) = units.as_chunks::<{ size_of::<Unit>() }>();
    let mut units = units.iter().filter(|_| rest.is_empty()).map(|unit| {
        let word = |at: usize| unit[at..at + 8].try_into().map_or(0, u64::from_ne_bytes);
        [word(0), word(8)]
    });
    let chunk = |(id, piece)| match piece {
        Piece::Units(count) => {
            let count = usize::try_from(count).ok()?;
            let units: Vec<Unit> = units.by_ref().take(count).collect();
            (units.len() == count).then_some((id, Chunk::Units(units)))
        }
        Piece::Other(chunk) => Some((id, chunk)),
    };
    let chunks = chunks.into_iter().map(chunk).collect::<Option<_>>()?;
    Some(Batch { settled_ns, reading, chunks, busy })
}

// The state of a recording at the moment when everything that was drained is composed, or in the merger.

/// The state, to be written.
#[derive(Debug, Serialize)]
pub(crate) struct Snapshot<'a> {
    /// Number of rows of the trace until now.
    pub(crate) rows: u64,
    pub(crate) composer: &'a Composer,
    pub(crate) merger: &'a Merger,
    /// Switches that are not composed.
    pub(crate) switches: Vec<Switch>,
}

/// The state, as it was read.
#[derive(Debug, Deserialize)]
pub(crate) struct Restored {
    pub(crate) rows: u64,
    pub(crate) composer: Composer,
    pub(crate) merger: Merger,
    pub(crate) switches: Vec<Switch>,
}
