//! Compiles the C programs with clang and makes their skeletons.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use libbpf_cargo::SkeletonBuilder;

/// Each program is a triple: `src/x.bpf.c`, `src/x.h` for what it shares with its loader, and the loader `src/x.rs`.
const PROGRAMS: [&str; 8] = ["afxdp", "forward", "guard", "late", "packets", "services", "splice", "witness"];
/// Those that outlive the process that loads them, so that a later one asks of which build they are.
const PINNED: [&str; 4] = ["forward", "guard", "services", "splice"];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    // Where Debian keeps <asm/types.h>, that of its cross compilers last; clang looks there by itself only when it
    // compiles for this machine.
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    let machine = format!("-I/usr/include/{arch}-linux-gnu");
    let crossed = format!("-I/usr/{arch}-linux-gnu/include");
    // libbpf's headers are those of the libbpf that is linked (the crate that builds it says where).
    let libbpf = format!("-I{}", env::var("DEP_BPF_INCLUDE").expect("libbpf-sys says where its headers are"));
    // What is compiled in two checkouts is the same, byte for byte, and so is its build.
    let checkout = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let paths = format!("-ffile-prefix-map={checkout}=.");
    println!("cargo:rerun-if-changed=src");
    for program in PROGRAMS {
        let skeleton = out.join(format!("{program}.skel.rs"));
        SkeletonBuilder::new()
            .source(format!("src/{program}.bpf.c"))
            // The third instruction set (Linux 5.1) has 32-bit jumps and so needs fewer instructions.
            .clang_args(["-mcpu=v3", "-Wall", "-Wextra", "-Werror", &paths, &libbpf, &machine, &crossed])
            .build_and_generate(&skeleton)
            .unwrap_or_else(|error| panic!("{program}.bpf.c: {error:#}\n(needs clang and linux-libc-dev)"));
        if PINNED.contains(&program) {
            say_build(&skeleton);
        }
    }
}

/// Adds to a skeleton the number of its build: it is another one wherever a byte of the programs is.
fn say_build(path: &Path) {
    let mut text = fs::read_to_string(path).expect("it was just written");
    // FNV-1a, 64 bits. A build of before has no number, which reads as 0.
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    text += &format!("\n/// Of which build these programs are.\npub const BUILD: u64 = {};\n", hash.max(1));
    fs::write(path, text).expect("it can be written again");
}
