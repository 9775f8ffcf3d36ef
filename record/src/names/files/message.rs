//! Messages between klock and its helper processes: MessagePack behind its length, and at most one
//! descriptor. An unwind table has tens of thousands of numbers, which take too long as text.
//!
//! Both ends check the length before they allocate. An answer of a parser may come from a process that a
//! hostile file has taken over, so its strings and lists are limited again by the code that uses them.

use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use blazesym::symbolize::{CodeInfo, Sym};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::language::{Language, demangled};

const MAX_BYTES: u32 = 8 << 20;
/// Maximum size of a symbol or a file name in bytes.
const MAX_NAME: usize = 16 << 10;
/// Maximum number of offsets of a function that is probed. glibc has one or two versions of each.
pub(crate) const MAX_OFFSETS: usize = 16;
/// Maximum number of functions that were inlined at one address.
const MAX_INLINED: usize = 256;

/// A request to the opener. The answer is `Ok` and a descriptor, or the reason.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum OpenRequest {
    /// Opens a file that a process maps.
    Mapped {
        pid: u32,
        /// First address of the mapping, and first address behind it.
        range: (u64, u64),
        /// The device and the inode of the file.
        device: (u32, u32),
        inode: u64,
        /// The path as the process sees it.
        path: String,
    },
    Debug {
        /// The process whose root the path begins at, and its user; `None` for klock's own root.
        process: Option<(u32, u32)>,
        path: String,
    },
}

/// The answer of the opener: the size of the file, or the reason.
pub(super) type OpenAnswer = Result<u64, String>;

/// A request to the parser. `file` is a number that klock chooses. Each answer is [`Timed`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ParseRequest {
    /// Reads a file, whose descriptor comes with the request. The answer is an [`ElfFacts`], or the reason.
    Load { file: u32 },
    /// Reads a file with the debug information of `file`. The answer is a `bool`: whether it belongs to it.
    LoadDebug { file: u32 },
    /// Reads the language of a program, whose descriptor comes with the request. The answer is an `Option` of
    /// a [`Language`].
    Language,
    /// Names code at offsets of files. The answer is a [`NamedCode`] for each, timed one by one.
    Symbols { of: Vec<(u32, u64)> },
    /// Names the variable at an address of the file's memory. The answer is an `Option<String>`.
    Variable { file: u32, address: u64 },
    /// Finds the pthread functions. The answer is a list of [`Function`], or the reason.
    Functions { file: u32 },
    /// Finds the slow paths of a language's locks. The answer is a list of [`Function`], or the reason.
    SlowPaths { file: u32, language: Language },
    /// Reads the unwind table from row `first` on. The answer is an
    /// [`UnwindPage`](crate::names::unwind::UnwindPage).
    Unwind { file: u32, first: usize },
}

/// The facts of an ELF file that klock needs often.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ElfFacts {
    /// The build id in lower-case hex.
    pub(crate) build_id: Option<String>,
    /// The parts of the file that are loaded into memory.
    pub(crate) segments: Vec<Segment>,
    /// The name of the file with debug information.
    pub(crate) debug_link: Option<String>,
}

/// A part of a file that is loaded into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Segment {
    /// The address in the file's own numbering.
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) offset: u64,
    pub(crate) file_bytes: u64,
}

/// An answer of the parser, and the processor time that it took.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Timed<T> {
    pub(super) value: T,
    pub(super) micros: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NamedCode {
    /// Functions that were inlined there, innermost first, then the function that contains them.
    pub(crate) functions: Vec<SymbolFrame>,
    /// Whether it keeps a frame pointer, which leads to its caller.
    pub(crate) keeps_frame_pointer: bool,
}

/// A function at an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SymbolFrame {
    /// The name, demangled if it has a mangling prefix.
    pub(crate) name: String,
    /// The offset of the address in the function; `None` if the function was inlined.
    pub(crate) offset: Option<u64>,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
}

/// A function that can be probed, and its offsets in the file: one for each version or copy of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Function {
    /// The name in [`trace_format::user_functions`].
    pub(crate) symbol: String,
    pub(crate) offsets: Vec<u64>,
}

impl SymbolFrame {
    /// Returns the functions of a symbol: those that were inlined at the address, innermost first, then the
    /// function that contains them.
    pub(crate) fn all_of(symbol: &Sym<'_>) -> Vec<Self> {
        let mut frames = Vec::with_capacity(1 + symbol.inlined.len());
        for function in symbol.inlined.iter().rev().take(MAX_INLINED) {
            frames.push(Self::new(&function.name, None, function.code_info.as_ref()));
        }
        frames.push(Self::new(&symbol.name, Some(symbol.offset as u64), symbol.code_info.as_deref()));
        frames
    }

    /// Returns a local function without lines.
    pub(super) fn of_local(name: &str, offset: u64) -> Self {
        Self::new(name, Some(offset), None)
    }

    fn new(name: &str, offset: Option<u64>, code: Option<&CodeInfo<'_>>) -> Self {
        Self {
            name: shortened(demangled(name).as_deref().unwrap_or(name)).to_owned(),
            offset,
            file: code.map(|code| shortened(&code.to_path().to_string_lossy()).to_owned()),
            line: code.and_then(|code| code.line),
        }
    }

    pub(super) fn text_bytes(&self) -> usize {
        self.name.len() + self.file.as_ref().map_or(0, String::len)
    }
}

/// Cuts a name to the maximum.
pub(super) fn shortened(name: &str) -> &str {
    let end = (0..=name.len().min(MAX_NAME)).rev().find(|&end| name.is_char_boundary(end));
    &name[..end.unwrap_or(0)]
}

pub(super) fn send(
    mut socket: &UnixStream,
    message: &impl Serialize,
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let bytes = rmp_serde::to_vec(message).map_err(io::Error::other)?;
    let length = u32::try_from(bytes.len()).ok().filter(|&length| length <= MAX_BYTES);
    let length = length.ok_or(io::ErrorKind::InvalidData)?.to_le_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = descriptor.map(|descriptor| [descriptor]);
    if let Some(descriptors) = &descriptors {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let sent = sendmsg(socket, &[IoSlice::new(&length)], &mut control, SendFlags::NOSIGNAL)?;
    socket.write_all(&length[sent..])?;
    socket.write_all(&bytes)
}

/// Receives a message, and the descriptor that came with it. An end of the connection is an error.
pub(super) fn receive<T: DeserializeOwned>(mut socket: &UnixStream) -> io::Result<(T, Option<OwnedFd>)> {
    let mut length = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(&mut length)];
    let received = recvmsg(socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
    if received == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    socket.read_exact(&mut length[received..])?;
    let length = u32::from_le_bytes(length);
    if length > MAX_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length as usize];
    socket.read_exact(&mut bytes)?;
    Ok((rmp_serde::from_slice(&bytes).map_err(io::Error::other)?, descriptor))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn a_message_arrives_with_its_descriptor() {
        let (here, there) = UnixStream::pair().unwrap();
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        send(&here, &"hello", Some(file.as_fd())).unwrap();
        send(&here, &"again", None).unwrap();
        let (text, descriptor): (String, _) = receive(&there).unwrap();
        assert!(text == "hello" && descriptor.is_some());
        let (text, descriptor): (String, _) = receive(&there).unwrap();
        assert!(text == "again" && descriptor.is_none());
    }

    #[test]
    fn a_length_above_the_maximum_is_refused_before_anything_is_allocated() {
        let (mut here, there) = UnixStream::pair().unwrap();
        here.write_all(&u32::MAX.to_le_bytes()).unwrap();
        assert_eq!(receive::<String>(&there).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn an_answer_of_the_wrong_form_is_an_error() {
        let (here, there) = UnixStream::pair().unwrap();
        send(&here, &vec![1, 2, 3], None).unwrap();
        assert!(receive::<ElfFacts>(&there).is_err());
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        assert_eq!(shortened("short"), "short");
        let long = "ä".repeat(MAX_NAME);
        assert_eq!(shortened(&format!("x{long}")).len(), MAX_NAME - 1);
    }
}
