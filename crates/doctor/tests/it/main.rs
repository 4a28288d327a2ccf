//! Planted faults, on texts in the kernel's forms and on the kernel itself.

mod document;
mod faults;
mod live;
mod rows;
mod scene;
mod trees;
