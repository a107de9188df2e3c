"""GGUF files: conversion with llama.cpp's own converters, and how close llama.cpp comes to the evaluated adapter."""
