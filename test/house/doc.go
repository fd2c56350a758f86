// Package house has tests of the project as a whole: its folders, package comments,
// imports, and documents that name tests.
package house
