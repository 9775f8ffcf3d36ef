//! A directory of a hostile user with files that are traps for a program that opens or parses them, and a
//! file system that stops answering.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    fs::{self, File},
    io::Write as _,
    os::unix::{fs::chown, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tempfile::TempDir;

use super::{ATTACKER, Running, kill, root, set_mode};

/// A directory of the hostile user, with the programs of `fixtures/attacks`.
pub struct Arena(TempDir);

impl Arena {
    /// Creates it.
    pub fn new() -> Self {
        let arena = Self(tempfile::tempdir().unwrap());
        set_mode(arena.0.path(), 0o777);
        for name in ["hostile_files", "hostile_fuse"] {
            let source = root().join("fixtures/attacks").join(format!("{name}.c"));
            arena.compile(
                &source,
                name,
                &["-Wall", "-Wextra", "-Werror", "-O1", "-fno-omit-frame-pointer", "-pthread"],
            );
        }
        let source = arena.path("victim.c");
        fs::write(&source, "static int bait[1000];\nint victim(int n) { return bait[n]++; }\n").unwrap();
        arena.compile(&source, "victim.so", &["-shared", "-fPIC", "-g", "-Wl,--build-id"]);
        arena
    }

    /// Returns its path.
    pub fn directory(&self) -> &Path {
        self.0.path()
    }

    /// Returns the path of a file in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Compiles a C file.
    pub fn compile(&self, source: &Path, name: &str, flags: &[&str]) {
        let mut gcc = Command::new("gcc");
        let status = gcc.args(flags).arg(source).arg("-o").arg(self.path(name)).status().unwrap();
        assert!(status.success());
    }

    /// Runs lines of Python that write a hostile file. `elf` is the victim's bytes, and `save(name, bytes)`
    /// writes one.
    pub fn write_with_python(&self, lines: &str) {
        let begin = "import struct, zlib, os\nelf = bytearray(open('victim.so', 'rb').read())\n\
                     def save(name, data):\n    open(name, 'wb').write(data)\n\
                     def sections():\n    at, = struct.unpack_from('<Q', elf, 0x28); n, = struct.unpack_from('<H', elf, 0x3c)\n    \
                     return [at + 64 * i for i in range(n)]\n";
        let mut python = Command::new("python3");
        let status =
            python.arg("-c").arg(format!("{begin}{lines}")).current_dir(self.0.path()).status().unwrap();
        assert!(status.success(), "{lines}");
    }

    /// Starts the program that maps files, as the hostile user. Returns when all are mapped.
    pub fn map(&self, files: &[&str]) -> (Running, String) {
        self.start(Command::new(self.path("hostile_files")).args(files))
    }

    /// Starts a command as the hostile user. Returns it with its PID when all files are mapped.
    pub fn start(&self, command: &mut Command) -> (Running, String) {
        let hostile = Running::start(
            command.current_dir(self.0.path()).uid(ATTACKER).gid(ATTACKER).stdin(Stdio::null()),
        );
        let pid = hostile.line_after("ready ");
        (hostile, pid)
    }

    /// Writes files that claim false sizes, unpack to 4 GiB, are sparse, or change once they are mapped.
    /// Returns their names.
    pub fn write_traps(&self) -> [&'static str; 8] {
        // Each section claims to be nearly as large as an address space.
        self.write_with_python(
            "for at in sections(): struct.pack_into('<Q', elf, at + 32, (1 << 62) if struct.unpack_from('<I', elf, at + 4)[0] in (2, 3) else (1 << 40))\n\
             save('sizes.so', elf)\n",
        );
        // The table of sections claims four thousand million entries.
        self.write_with_python("struct.pack_into('<H', elf, 0x3c, 0); struct.pack_into('<Q', elf, sections()[0] if sections() else struct.unpack_from('<Q', elf, 0x28)[0] + 32, 1 << 32)\nsave('number.so', elf)\n");
        // A compressed section of 4 GiB: blocks of one repeated byte (RFC 8878), or deflated zeros that claim
        // that size.
        let compressed = |kind: u32, name: &str, bytes: &str| {
            format!(
                "data = {bytes}\n\
                 names = [at for at in sections() if struct.unpack_from('<I', elf, at + 4)[0] == 1 and not struct.unpack_from('<Q', elf, at + 8)[0]]\n\
                 at = next(at for at in sections() if b'.debug_info\\0' == bytes(elf[table + struct.unpack_from('<I', elf, at)[0]:][:12]))\n\
                 offset = len(elf); body = struct.pack('<IIQQ', {kind}, 0, 4 << 30, 1) + data\n\
                 struct.pack_into('<Q', elf, at + 8, 0x800); struct.pack_into('<QQ', elf, at + 24, offset, len(body))\n\
                 save('{name}', elf + body)\n"
            )
        };
        let table = "table, = struct.unpack_from('<Q', elf, sections()[struct.unpack_from('<H', elf, 0x3e)[0]] + 24)\n";
        let frames = "struct.pack('<IBBQ', 0xfd2fb528, 0xc0, 0x38, 4 << 30) + b''.join(((131072 << 3) | 2 | (i == 32767)).to_bytes(3, 'little') + b'\\0' for i in range(32768))";
        self.write_with_python(&format!("{table}{}", compressed(2, "zstd.so", frames)));
        self.write_with_python(&format!(
            "{table}{}",
            compressed(1, "zlib.so", "zlib.compress(bytes(600 << 20), 1)")
        ));
        let sparse = self.copy("sparse.so");
        File::options().write(true).open(&sparse).unwrap().set_len(4700 << 20).unwrap();
        let hole = self.copy("hole.so");
        File::options().write(true).open(&hole).unwrap().set_len(900 << 20).unwrap();
        self.copy("shrunk.so");
        self.copy("piped.so");
        ["sizes.so", "number.so", "zstd.so", "zlib.so", "sparse.so", "hole.so", "shrunk.so", "piped.so"]
    }

    /// Changes the files that had to be intact while they were mapped.
    pub fn spring_traps(&self) {
        File::options().write(true).open(self.path("shrunk.so")).unwrap().set_len(100).unwrap();
        make_pipe(&self.path("piped.so"));
    }

    /// Copies the victim, for the hostile user.
    pub fn copy(&self, name: &str) -> PathBuf {
        let copy = self.path(name);
        fs::copy(self.path("victim.so"), &copy).unwrap();
        chown(&copy, Some(ATTACKER), Some(ATTACKER)).unwrap();
        copy
    }
}

/// Puts a pipe in place of a file.
pub fn make_pipe(path: &Path) {
    let _ = fs::remove_file(path);
    assert!(Command::new("mkfifo").arg("-m").arg("666").arg(path).status().unwrap().success());
}

/// A mounted file system with one file, which the hostile user may map.
pub struct HostileFuse {
    server: Running,
    at: PathBuf,
}

impl HostileFuse {
    /// Mounts it; `None` if this machine has no such file systems.
    pub fn mount(arena: &Arena) -> Option<Self> {
        if !Path::new("/dev/fuse").exists() {
            return None;
        }
        let at = arena.path("mounted");
        fs::create_dir(&at).unwrap();
        let mut server = Command::new(arena.path("hostile_fuse"));
        server.arg(&at).arg(arena.path("victim.so")).arg(ATTACKER.to_string());
        let server = Running::start(server.stdin(Stdio::piped()));
        server.line_after("ready");
        Some(Self { server, at })
    }

    /// Stops answering.
    pub fn hang(&mut self) {
        self.server.child.stdin.take().unwrap().write_all(b"hang\n").unwrap();
        self.server.line_after("hangs");
    }
}

impl Drop for HostileFuse {
    fn drop(&mut self) {
        // Processes that wait for the server can then end.
        kill(self.server.child.id().cast_signed());
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}
