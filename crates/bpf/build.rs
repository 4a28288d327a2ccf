//! Compiles the C programs with clang and makes their skeletons.

use std::env;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

/// Each program is a triple: `src/x.bpf.c`, `src/x.h` for what it shares with its loader, and the loader `src/x.rs`.
const PROGRAMS: [&str; 8] = ["afxdp", "forward", "guard", "late", "packets", "services", "splice", "witness"];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    // Where Debian keeps <asm/types.h>, that of its cross compilers last; clang looks there by itself only when it
    // compiles for this machine.
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    let machine = format!("-I/usr/include/{arch}-linux-gnu");
    let crossed = format!("-I/usr/{arch}-linux-gnu/include");
    // libbpf's headers are those of the libbpf that is linked (the crate that builds it says where).
    let libbpf = format!("-I{}", env::var("DEP_BPF_INCLUDE").expect("libbpf-sys says where its headers are"));
    println!("cargo:rerun-if-changed=src");
    for program in PROGRAMS {
        SkeletonBuilder::new()
            .source(format!("src/{program}.bpf.c"))
            // The third instruction set (Linux 5.1) has 32-bit jumps and so needs fewer instructions.
            .clang_args(["-mcpu=v3", "-Wall", "-Wextra", "-Werror", &libbpf, &machine, &crossed])
            .build_and_generate(out.join(format!("{program}.skel.rs")))
            .unwrap_or_else(|error| panic!("{program}.bpf.c: {error:#}\n(needs clang and linux-libc-dev)"));
    }
}
