//! Random numbers that cannot be guessed.

use std::io;

use trace_format::preload::SECRET_BYTES;

use crate::system::hex;

/// A random number, for names.
pub(super) fn random() -> u64 {
    let mut number = [0; size_of::<u64>()];
    // A number that is not random makes a name that is taken, which is reported.
    let _ = fill(&mut number);
    u64::from_ne_bytes(number)
}

fn fill(bytes: &mut [u8]) -> io::Result<()> {
    // SAFETY: the bytes are ours and outlive the call.
    let count = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if count == bytes.len() as isize { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The secret of a recording, which every process that joins it must present.
#[derive(Clone, Copy)]
pub(super) struct Secret([u8; SECRET_BYTES]);

impl Secret {
    pub(super) fn new() -> io::Result<Self> {
        let mut bytes = [0; SECRET_BYTES];
        fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// Returns the secret in hexadecimal digits.
    pub(super) fn to_hex(self) -> String {
        hex(&self.0)
    }

    /// Returns whether a process presented this secret, in a time that is independent of the bytes.
    pub(super) fn matches(&self, presented: &[u8; SECRET_BYTES]) -> bool {
        let differences =
            self.0.iter().zip(presented).fold(0, |all, (a, b)| std::hint::black_box(all | (a ^ b)));
        differences == 0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_matches_only_itself() {
        let secret = Secret::new().unwrap();
        assert!(secret.matches(&secret.0) && secret.to_hex().len() == 32);
        for byte in 0..SECRET_BYTES {
            let mut other = secret.0;
            other[byte] ^= 0x10;
            assert!(!secret.matches(&other));
        }
        assert!(!Secret::new().unwrap().matches(&secret.0));
    }
}
